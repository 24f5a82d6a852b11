"""OrangeFS servers of this machine, proxies before them, and clients by zones."""

import contextlib
import hashlib
import json
import os
import pathlib
import signal
import socket
import subprocess

from waiting import until

HENGE = os.path.abspath(os.environ.get("HENGE", "target/release/henge"))
ORANGEFS = pathlib.Path(os.environ.get("ORANGEFS", "/opt/orangefs"))
MOUNT = "/mnt/orangefs"  # a name for clients' library: nothing is mounted
ROOT = 1_048_576  # the handle of a file system's root

DEFAULTS = """<Defaults>
    UnexpectedRequests 50
    EventLogging none
    LogStamp datetime
    BMIModules bmi_tcp
    FlowModules flowproto_multiqueue
    PerfUpdateInterval 1000
    ServerJobBMITimeoutSecs 30
    ServerJobFlowTimeoutSecs 30
    ClientJobBMITimeoutSecs 300
    ClientJobFlowTimeoutSecs 300
    ClientRetryLimit 5
    ClientRetryDelayMilliSecs 500
    PrecreateBatchSize 0,32,64,64,32,64,0
    PrecreateLowThreshold 0,16,16,16,16,16,0
{defaults}
</Defaults>
<Aliases>
{aliases}
</Aliases>
"""
SYSTEM = """<FileSystem>
    Name {name}
    ID {id}
    RootHandle {root}
    FileStuffing {stuffing}
    DistrDirServersInitial 1
    DistrDirServersMax 1
    DistrDirSplitSize 100
    {options}
    <MetaHandleRanges>
{metas}
    </MetaHandleRanges>
    <DataHandleRanges>
{datas}
    </DataHandleRanges>
    <StorageHints>
        TroveSyncMeta no
        TroveSyncData no
        TroveMethod {trove}
    </StorageHints>
</FileSystem>
"""


def free_ports(count):
    """Ports that nobody has now, none of those that the kernel gives to connections."""
    ports, at = [], 15_000 + os.getpid() * 37 % 12_000
    while len(ports) < count:
        at += 1
        with contextlib.suppress(OSError), socket.socket() as s:
            s.bind(("127.0.0.1", at))
            ports.append(at)
    return ports


class Servers:
    """Metadata servers, data servers, and such as are both; the zones of applications name the ports of proxies."""

    def __init__(self, dir, metas=1, datas=4, both=0, apps=("one",), home=ORANGEFS, defaults="", trove="alt-aio", stuffing="no", systems=1, options="",
                 by_rule=()):
        self.dir, self.home, self.apps = pathlib.Path(dir), pathlib.Path(home), list(apps)
        self.dir.mkdir(parents=True, exist_ok=True)
        self.names = [f"m{i}" for i in range(metas)] + [f"d{i}" for i in range(datas)] + [f"b{i}" for i in range(both)]
        ports = iter(free_ports(len(self.names) * (1 + len(self.apps))))
        self.port = {name: next(ports) for name in self.names}
        self.proxy_port = {name: {app: next(ports) for app in self.apps} for name in self.names}
        self.is_data = {name: name[0] in "db" for name in self.names}
        self.process = {}
        self.conf = self.dir / "fs.conf"
        self.systems, self.options, self.by_rule = systems, options, by_rule
        self.conf.write_text(self.text(defaults, trove, stuffing))
        try:
            for name in self.names:
                self.run(self.home / "sbin/pvfs2-server", "-f", self.conf, "-a", name)
                self.start(name)
        except BaseException:
            self.down()
            raise

    def text(self, defaults, trove, stuffing):
        aliases, metas, datas, options = [], [], [], []
        spans = {kind: [n for n in self.names if n[0] in kind] for kind in ("mb", "db")}
        for name in self.names:
            zones = "".join(f",tcp-{app}://127.0.0.1:{port}" for app, port in self.proxy_port[name].items())
            aliases.append(f"    Alias {name} tcp-srv://127.0.0.1:{self.port[name]}{zones}")
            options.append(f"<ServerOptions>\n    Server {name}\n    DataStorageSpace {self.dir}/{name}.data\n"
                           f"    MetadataStorageSpace {self.dir}/{name}.meta\n    LogFile {self.dir}/{name}.log\n</ServerOptions>")
        for names, ranges, first in [(spans["mb"], metas, 3), (spans["db"], datas, 1 << 62)]:
            step = (1 << 60) // len(names)
            for i, name in enumerate(names):
                ranges.append(f"        Range {name} {first + i * step}-{first + (i + 1) * step - 1}")
        join = "\n".join
        text = DEFAULTS.format(defaults=defaults, aliases=join(aliases))
        for i in range(self.systems):
            name, id = f"orangefs{i + 1 if i else ''}", 1_899_051_543 + i
            text += SYSTEM.format(name=name, id=id, root=ROOT, metas=join(metas), datas=join(datas), trove=trove, stuffing=stuffing, options=self.options)
        return text + join(options) + "\n"

    def run(self, *command):
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, (command, done.stdout[-2000:], done.stderr[-2000:])

    def start(self, name):
        log = open(self.dir / f"{name}.out", "ab")
        command = [str(self.home / "sbin/pvfs2-server"), "-d", str(self.conf), "-a", name]
        self.process[name] = subprocess.Popen(command, stdout=log, stderr=log)
        until(f"{name} listens", lambda: self.process[name].poll() is None and listens(self.port[name]), 20)

    def kill(self, name, how=signal.SIGKILL):
        self.process[name].send_signal(how)
        self.process[name].wait(20)

    def down(self):
        for process in self.process.values():
            with contextlib.suppress(Exception):
                process.kill()
                process.wait(20)


def listens(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


class Proxy:
    """Before one server; of a cluster of as many as there are data servers, where `sync` says how."""

    def __init__(self, servers, name, flows, scheduler="sfq = { depth = 4 }", sync=None, more="", links=None, link="127.0.0.1", tables=""):
        self.servers, self.name, self.link, self.tables = servers, name, link, tables
        self.flows, self.scheduler, self.sync, self.more, self.links = flows, scheduler, sync, more, links or {}
        self.file, self.control = servers.dir / f"{name}.toml", servers.dir / f"{name}.sock"
        self.write()
        self.start()

    def write(self):
        s = self.servers
        text = f'server = "127.0.0.1:{s.port[self.name]}"\ncontrol = "{self.control}"\nscheduler = {{ {self.scheduler} }}\n'
        text += f'state_dir = "{s.dir}"\n{self.more}\n'
        if self.sync and self.name in self.links:
            text += f'sync = {self.sync}\n[cluster]\nnode = "{self.name}"\nsecret = "correct horse battery"\nlisten = "{self.link}:{self.links[self.name]}"\n'
            for other, port in self.links.items():
                if other != self.name:
                    text += f'[[peer]]\nname = "{other}"\naddress = "{self.link}:{port}"\n'
        for flow, contract in self.flows.items():
            text += f'[[flow]]\nname = "{flow}"\ncontract = {{ {contract} }}\n'
        for app, port in s.proxy_port[self.name].items():
            text += f'[[listen]]\naddress = "127.0.0.1:{port}"\n'
            text += "" if app in s.by_rule else f'flow = "{app}"\n'
        self.file.write_text(text + self.tables)

    def start(self):
        log = open(self.servers.dir / f"{self.name}.proxy", "ab")
        self.process = subprocess.Popen([HENGE, "proxy", "-c", str(self.file)], stdout=log, stderr=log)
        until(f"the proxy of {self.name}", lambda: self.process.poll() is None and self.status(), 20)

    def status(self):
        done = subprocess.run([HENGE, "proxy", "--status", str(self.control), "--json"], capture_output=True, text=True)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def anew(self):
        self.process.send_signal(signal.SIGHUP)

    def kill(self, how=signal.SIGKILL):
        self.process.send_signal(how)
        self.process.wait(30)

    def down(self):
        with contextlib.suppress(Exception):
            self.process.kill()
            self.process.wait(20)


class Bed:
    """Servers with a proxy before each, in a folder in memory."""

    def __init__(self, dir, flows, sync=None, scheduler="sfq = { depth = 4 }", more="", home=ORANGEFS, client=None, link="127.0.0.1", tables="", **servers):
        self.proxies, self.copies, self.link, self.tables = {}, 0, link, tables
        self.servers = Servers(dir, apps=list(flows), home=home, **servers)
        self.dir, self.client = self.servers.dir, pathlib.Path(client or home)
        try:
            self.bring_up(flows, scheduler, sync, more)
        except BaseException:
            self.down()
            raise

    def bring_up(self, flows, scheduler, sync, more):
        data = [name for name in self.servers.names if self.servers.is_data[name]]
        links = dict(zip(data, free_ports_apart(len(data), self.servers))) if sync else {}
        for name in self.servers.names:
            self.proxies[name] = Proxy(self.servers, name, flows, scheduler, sync, more, links, self.link, self.tables)
        if sync:
            for name in data:
                until(f"the links of {name}", lambda name=name: self.proxies[name].status()["linked"] == len(data) - 1, 20)
        self.ready()

    def ready(self):
        for app in self.servers.apps:
            port = self.servers.proxy_port[self.servers.names[0]][app]
            numbers = ["", *range(2, self.servers.systems + 1)]
            self.tab(app).write_text("".join(f"tcp-{app}://127.0.0.1:{port}/orangefs{n} {MOUNT}{n} pvfs2 defaults 0 0\n" for n in numbers))

        first = self.servers.port[self.servers.names[0]]
        self.tab("srv").write_text(f"tcp-srv://127.0.0.1:{first}/orangefs {MOUNT} pvfs2 defaults 0 0\n")  # past all proxies

    def tab(self, app):
        return self.dir / f"{app}.tab"

    def env(self, app):
        return {**os.environ, "PVFS2TAB_FILE": str(self.tab(app)), "LD_LIBRARY_PATH": str(self.client / "lib")}

    def begin(self, app, tool, *words, **more):
        command = [str(self.client / "bin" / tool) if "/" not in str(tool) else str(tool), *map(str, words)]
        return subprocess.Popen(command, env=self.env(app), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)

    def run(self, app, tool, *words, fails=False, seconds=60):
        process = self.begin(app, tool, *words)
        try:
            said, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise SystemExit(f"{tool} {words}: not within {seconds} s; {self.counts()}")
        assert (process.returncode != 0) == fails, (tool, words, process.returncode, said[-2000:])
        return said

    def copied(self, app, size, name=None, *words):
        """A copy there and back is the same. pvfs2-cp writes over no file."""
        self.copies += 1
        name = name or f"copy{self.copies}"
        there, back = self.dir / "there", self.dir / "back"
        there.write_bytes(os.urandom(size))
        self.run(app, "pvfs2-cp", *words, there, f"{MOUNT}/{name}")
        self.run(app, "pvfs2-cp", *words, f"{MOUNT}/{name}", back)
        same = hashlib.sha256(there.read_bytes()).digest() == hashlib.sha256(back.read_bytes()).digest()
        back.unlink()
        assert same, f"{name} of {size} bytes came back as something else"

    def counts(self):
        """Of all proxies, what is not as it should be."""
        keys = ["malformed", "unsound", "unfollowed", "opaque", "expired", "unanswered", "ambiguous"]
        all = [proxy.status() or {} for proxy in self.proxies.values()]
        return {key: sum(status.get(key, 0) for status in all) for key in keys}

    def moved(self, names=None):
        """Bytes that each application has moved."""
        total = {}
        for name, proxy in self.proxies.items():
            if names is None or name in names:
                for flow in proxy.status()["flows"]:
                    total[flow["name"]] = total.get(flow["name"], 0) + flow["bytes"]
        return total

    def down(self):
        for proxy in self.proxies.values():
            proxy.down()
        self.servers.down()


def free_ports_apart(count, servers):
    """Ports beyond those that are the servers' and the proxies'."""
    taken = set(servers.port.values()) | {port for ports in servers.proxy_port.values() for port in ports.values()}
    return [port for port in free_ports(count + len(taken)) if port not in taken][:count]
