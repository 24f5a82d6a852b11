"""The simple commands of a block: words, without redirections, comments and bodies of here-documents."""
import re
import shlex

HERE = re.compile(r"<<-?\s*['\"]?(\w+)['\"]?")
ENDS = {";", "&", "&&", "|", "||", "(", ")", "\n"}
ASSIGNED = re.compile(r"^\w+=")
WORDS_BEFORE = {"sudo", "exec", "!", "if", "then", "else", "do", "while", "{"}


def lines(text):
    """Whole command lines: continued ones are joined, here-documents are left out."""
    kept, until = [], None
    for line in text.splitlines():
        if until is not None:
            until = None if line.strip() == until else until
            continue
        here = HERE.search(line)
        if here:
            until, line = here[1], line[: here.start()] + line[here.end() :]
        if kept and kept[-1].endswith("\\"):
            kept[-1] = kept[-1][:-1] + " " + line.strip()
        else:
            kept.append(line)
    return kept


def commands(text):
    """Each simple command as a list of words."""
    for line in lines(text):
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words, skip = [], False
        for word in [*lexer, "\n"]:
            if word in ENDS:
                if words := stripped(words):
                    yield words
                words = []
            elif set(word) <= set("<>&"):
                skip = True
                if words and words[-1].isdigit():
                    words.pop()
            elif skip:
                skip = False
            else:
                words.append(word)


def stripped(words):
    while words and (ASSIGNED.match(words[0]) or words[0] in WORDS_BEFORE):
        words = words[1:]
    return words
