"""Pages and their blocks, and how a block is marked.

    ```sh run                   run as it stands, in the page's order
    ```sh run answers           the same, and henge may end with 1: an answer, no failure
    ```sh run background        run, and it goes on while the next ones run
    ```sh not run: REASON       cannot be run on a machine for tests; its commands are checked
    ```toml node                a node's file; also manager, proxy, scenario, admit
    ```toml node part           keys or tables of one; disk, pool and flow: keys of such a table
    ```toml flow lines          the same, each line by itself
    <!-- run … -->              run, and not shown: what the page takes for granted

Other languages hold no commands. A block without a fence has no mark.
"""
import dataclasses
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FILES = ("node", "manager", "proxy", "scenario", "admit")
TABLES = ("disk", "pool", "flow")
SILENT = ("text", "json", "xml", "powershell")
FENCE = re.compile(r"^( *)```(.*)$")
HIDDEN = "<!-- run"


@dataclasses.dataclass
class Block:
    page: pathlib.Path
    line: int
    mark: str
    text: str

    @property
    def place(self):
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def runs(self):
        return self.mark in ("sh run", "sh run answers", "sh run background", HIDDEN)

    @property
    def why_not(self):
        """Why its commands are not run."""
        return self.mark.partition("sh not run:")[2].strip()

    def fault(self):
        """What is wrong with its mark."""
        if self.mark.startswith(HIDDEN):
            return None if self.mark == HIDDEN else f'"{self.mark}" is no mark; {HIDDEN} stands alone in its line'
        language, _, rest = self.mark.partition(" ")
        if language in SILENT:
            return f'"{self.mark}": {language} has no mark' if rest else None
        if language == "sh":
            good = self.runs or self.why_not
            return None if good else 'a block of commands is "sh run" (answers, background) or "sh not run: REASON"'
        if language == "toml":
            kind, _, form = rest.partition(" ")
            good = (kind in FILES and form in ("", "part")) or (kind in TABLES and form in ("", "lines"))
            return None if good else f"toml says of what it is: {', '.join(FILES)} (or a part), {', '.join(TABLES)} (or lines)"
        return f'"{self.mark}" is no kind of block; known are sh, toml, {", ".join(SILENT)}'


def pages(names):
    """The pages that are named; all of docs/, README and CONTRIBUTING where none is."""
    if names:
        return [path if (path := ROOT / name).exists() else ROOT / "docs" / name for name in names]
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page):
    """The page's blocks in order, and what is wrong with their marks."""
    found, faults, inside, blank = [], [], None, True
    for number, line in enumerate(page.read_text().splitlines(), 1):
        fence = FENCE.match(line)
        if inside:
            closes = line == "-->" if inside.mark.startswith(HIDDEN) else fence and not fence[2]
            if closes:
                found.append(inside)
                inside = None
            else:
                inside.text += line + "\n"
        elif fence or line.startswith(HIDDEN):
            inside = Block(page, number, fence[2].strip() if fence else line.strip(), "")
        elif line.startswith("    ") and blank and not line.lstrip().startswith(("- ", "* ")):
            faults.append(f"{Block(page, number, '', '').place}: an indented block has no mark: put it between ```")
        blank = not line.strip() or (blank and line.startswith("    "))
    if inside:
        faults.append(f"{inside.place}: the block has no end")
    faults += [f"{block.place}: {fault}" for block in found if (fault := block.fault())]
    return found, faults


def prose(page):
    """The page's lines outside blocks, with their numbers."""
    inside = False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if FENCE.match(line) or line.startswith(HIDDEN) or (inside and line == "-->"):
            inside = not inside
        elif not inside:
            yield number, line
