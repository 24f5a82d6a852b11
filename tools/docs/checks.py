"""What can be said of a page without running it: its command lines, its configurations, and the names that it tells."""
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import tomllib
import pathlib

from .pages import ROOT, prose
from .shell import commands

# Tools of commands that a machine for tests may lack, by the package that has them.
PACKAGES = {
    "ceph": "ceph-common", "cargo": "cargo", "fio": "fio", "iscsiadm": "open-iscsi", "iscsi-ls": "libiscsi-bin", "make": "make",
    "mkfs.ext4": "e2fsprogs", "modprobe": "kmod", "nbd-client": "nbd-client", "nbdcopy": "libnbd-bin", "nft": "nftables",
    "nvme": "nvme-cli", "qemu-img": "qemu-utils", "qemu-system-x86_64": "qemu-system-x86", "rbd": "ceph-common", "rsync": "rsync",
    "socat": "socat", "systemctl": "systemd", "lsblk": "util-linux", "git": "git",
}
BUILTINS = {"cd", "export", "wait", "kill", "umask", "echo", "true"}
# A whole file around what a page shows of one. What the page itself states is left out here.
AROUND = {
    "node": ('state_dir = "state"', '[[pool]]\nname = "ssd"\npath = "pool"\ncapacity = "200TB"\nscheduler = "sfq"\n'),
    "manager": ('listen = "127.0.0.1:7100"\nnodes = "127.0.0.1:7101"\nstate_dir = "manager"\nsecret_file = "secret"', ""),
    "proxy": ('server = "10.0.0.11:3334"', '[[flow]]\nname = "weather"\n[[flow]]\nname = "genomics"\n[[listen]]\naddress = "10.0.0.11:9"\n'),
    "scenario": ('duration = "1s"', '[node]\ndevice = "sata-ssd"\nscheduler = "fifo"\n'),
}
TABLE = {
    "disk": ("node", '[[disk]]\nname = "shown"\npool = "ssd"\ncapacity = "1GB"\n'),
    "pool": ("node", '[[pool]]\nname = "shown"\ncapacity = "1GB"\n'),
    "flow": ("scenario", '[[flow]]\nname = "shown"\n'),
}


class Checks:
    def __init__(self, henge, shell):
        self.henge, self.shell = henge, shell
        self.faults, self.packages = [], {}

    def fault(self, place, why):
        self.faults.append(f"{place}: {why}")

    # Command lines.

    def block(self, block):
        """A block of commands that is not run."""
        try:
            found = list(commands(block.text))
        except ValueError as why:
            return self.fault(block.place, f"its commands cannot be read: {why}")
        if not found:
            self.fault(block.place, "it has no commands")
        for words in found:
            self.command(block.place, words)

    def command(self, place, words):
        tool, rest = words[0].rsplit("/", 1)[-1], words[1:]
        if tool == "henge":
            return self.ask(place, shlex.join(words), [*rest])
        if tool == "apt-get" and rest[:1] == ["install"]:
            for name in (word for word in rest[1:] if not word.startswith(("-", "."))):
                self.packages.setdefault(name, place)
        elif tool == "make":
            for name in (word for word in rest if "=" not in word):
                self.target(place, name)
        if tool in PACKAGES:
            self.packages.setdefault(PACKAGES[tool], place)
        elif not (tool in BUILTINS or shutil.which(tool)):
            self.fault(place, f'"{tool}" is no tool that is known; tools/docs/checks.py names packages')

    def silent(self, block):
        """A block of text: no command line of ours hides there."""
        for words in (line.split() for line in block.text.splitlines()):
            if words[:1] == ["henge"] and self.henge_says(["parse", "--", *words[1:]])[0]:
                self.fault(block.place, f'"{" ".join(words)}" is a command; its block begins with ```sh')

    def henge_says(self, words):
        done = subprocess.run([self.henge, *words], text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return done.returncode == 0, done.stdout.strip()

    def ask(self, place, line, words, part=False):
        good, said = self.henge_says(["parse", *(["--part"] if part else []), "--", *words])
        if not good:
            self.fault(place, f"{line}\n    " + said.replace("\n", "\n    "))

    # Configurations.

    def toml(self, block):
        kind, _, form = block.mark.removeprefix("toml ").partition(" ")
        if form == "lines":
            texts = [line for line in block.text.splitlines() if line.strip()]
        else:
            texts = [block.text]
        for text in texts:
            try:
                self.config(block.place, *whole(kind, form, text))
            except tomllib.TOMLDecodeError as why:
                self.fault(block.place, f"is no TOML: {why}")

    def config(self, place, kind, text):
        # Files that a configuration names are read; what is in them does not count here.
        named = re.findall(r'"(/etc/[^"]+)"', text)
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "secret").write_text("0123456789abcdef" * 4)
            pathlib.Path(folder, "financial1.spc").write_text("0,20941264,8192,W,0.551706\n" * 3)
            pathlib.Path(folder, "it.toml").write_text(text)
            pathlib.Path(folder, "secret.dhchap").write_text("DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:")
            make = [f"mkdir -p {shlex.quote(os.path.dirname(path))}; {made(path)}" for path in named]
            say = f"{shlex.quote(str(self.henge))} parse --kind {kind} --file it.toml"
            done = self.shell("\n".join([*make, say]), folder)
            if done.returncode:
                self.fault(place, "is not read\n    " + done.stdout.strip().replace("\n", "\n    "))

    # Names.

    def names(self, page):
        for number, line in prose(page):
            place = f"{page.relative_to(ROOT)}:{number}"
            for code in re.findall(r"`([^`]+)`", line):
                words = code.split()
                if words[0] == "henge" and len(words) > 1 and words[1].islower():
                    try:
                        self.ask(place, f"`{code}`", [word for word in shlex.split(code)[1:] if "…" not in word], part=True)
                    except ValueError as why:
                        self.fault(place, f"`{code}`: {why}")
                elif words[0] == "make":
                    for name in (word for word in words[1:2] if "=" not in word):
                        self.target(place, name)
                elif re.fullmatch(r"henge_\w+", code):
                    # Units and `_total` are put behind it when it is written.
                    self.named(place, code, f'"{re.sub("(_seconds|_bytes)?(_total)?$", "", code)}')
                elif re.fullmatch(r"(tools|crates|contrib|packaging|scenarios|benches)/[\w./-]+", words[0]):
                    if not (ROOT / words[0]).exists():
                        self.fault(place, f"there is no {words[0]}")

    def tables(self, page):
        """Tests, keys and messages that tables name."""
        column = None
        for number, line in prose(page):
            place = f"{page.relative_to(ROOT)}:{number}"
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else []
            if not cells:
                column = None
            elif column is None:
                column = {name.strip("`* "): i for i, name in enumerate(cells)}
            elif "test" in column and len(cells) > column["test"]:
                for name in re.findall(r"`(\w+_\w+)`", cells[column["test"]]):
                    self.named(place, name, f"fn {name}", f"{name}")
            elif "key" in column and page.name == "reference.md":
                for name in re.findall(r"`([a-z_]+)`", cells[column["key"]]):
                    self.named(place, name, f'"{name}"', f'"{name.replace("_", "-")}"')
            elif "it says" in column:
                for said in re.findall(r'"([^"]+)"', cells[column["it says"]]):
                    for piece in (piece.strip(" ,") for piece in said.split("…")):
                        if len(piece) > 7:
                            self.named(place, piece, piece)

    def named(self, place, name, *written):
        if not any(text in sources() for text in written):
            self.fault(place, f"`{name}` is nowhere in crates/")

    def target(self, place, name):
        if not re.search(rf"^{re.escape(name)}:", (ROOT / "Makefile").read_text(), re.M):
            self.fault(place, f"the Makefile has no {name}")

    def tests(self, block):
        """Tests and crates that `cargo test` lines name."""
        for words in commands(block.text):
            if words[:2] != ["cargo", "test"] or "-p" not in words:
                continue
            crate = words[words.index("-p") + 1]
            name = next((word for word in words[2:] if not word.startswith("-") and word not in (crate, "it")), None)
            folder = ROOT / "crates" / crate
            if not folder.exists():
                self.fault(block.place, f"there is no crate {crate}")
            elif name and name.rstrip(":") not in "".join(text(path) for path in folder.rglob("*.rs")):
                self.fault(block.place, f"{crate} has no test {name}")

    def are_packages(self):
        """Whether the packages are there, by the machine's lists; what kept us from asking, where something did."""
        known = lambda name: subprocess.run(["apt-cache", "show", name], capture_output=True).returncode == 0
        if not shutil.which("apt-cache"):
            return "no apt-cache"
        missing = [name for name in self.packages if not known(name)]
        if missing and subprocess.run(["apt-get", "update", "-qq"], capture_output=True).returncode:
            return "no lists of packages"
        for name in missing:
            if not known(name):
                self.fault(self.packages[name], f"there is no package {name}")
        return None


def made(path):
    """What makes a file of its kind."""
    at = shlex.quote(path)
    if path.endswith((".pem", ".key")):
        return f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=x -keyout it.key -out {at} 2>/dev/null"
    return f"cp secret{'.dhchap' if path.endswith('.dhchap') else ''} {at}"


def whole(kind, form, shown):
    """A whole configuration of its kind around what a page shows."""
    if kind in TABLE:
        kind, head = TABLE[kind]
        states = tomllib.loads(shown)
        shown = "\n".join(line for line in head.splitlines() if line.split(" =")[0] not in states) + "\n" + shown
    elif form != "part":
        return kind, shown
    states = tomllib.loads(shown)
    head, tail = AROUND.get(kind, ("", ""))
    if "gateways" in shown:
        tail = '[[pool]]\nname = "ceph"\nrbd = { pool = "henge" }\ncapacity = "2TB"\nscheduler = "sfq"\n'
    head = [line for line in head.splitlines() if line.split(" =")[0] not in states]
    if "identity" in states or "cluster" in states and kind == "manager":
        head = [line for line in head if not line.startswith("secret_file")]
    tail = [table for table in re.split(r"^(?=\[)", tail, flags=re.M) if table and re.match(r"\[+(\w+)", table)[1] not in states]
    return kind, "\n".join([*head, shown, *tail])


_texts = {}


def text(path):
    if path not in _texts:
        _texts[path] = path.read_text()
    return _texts[path]


def sources():
    """All of crates/ as one text; strings that go on in the next line are joined."""
    if "all" not in _texts:
        files = [path for path in (ROOT / "crates").rglob("*.rs")]
        _texts["all"] = re.sub(r"\\\n\s*", "", "\n".join(text(path) for path in files))
    return _texts["all"]
