"""Who runs where: in the field attackers and victims are on machines of their own, and take nothing of the node's processors."""
import ctypes
import os
import signal


def may_be_first():
    """Whether a process of ours may have real-time priority."""
    pid = os.fork()
    if pid == 0:
        try:
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0


class Grounds:
    """The node has one processor, with the kernel's workers that do its storage's work; who measures and who attacks have the others.

    Where there are three and more, victims have one for themselves. Where there are two, attackers run on the victims', and only while
    nobody else wants it: they have SCHED_IDLE and victims SCHED_FIFO. By SCHED_IDLE alone, an attacker that talks to nobody but itself
    brings a victim's 99th percentile from 0.2 to 3 ms. A system call is not broken off for that, so attackers' calls are short
    (`attacks.CALL`).
    """

    def __init__(self):
        mine = sorted(os.sched_getaffinity(0))
        self.node, *others = [{cpu} for cpu in mine]
        self.victims = others[0] if others else self.node
        self.attackers = set().union(*others[1:]) or self.victims
        self.apart = bool(others)
        self.first = self.apart and may_be_first()

    def says(self):
        if not self.apart:
            return "one processor for node, victims and attackers: what is measured is not the node alone"
        names = {who: ",".join(map(str, sorted(cpus))) for who, cpus in vars(self).items() if isinstance(cpus, set)}
        shared = " when they do not want it" if self.attackers == self.victims else ""
        if not self.first:
            shared += "; victims have no real-time priority here, so what they wait is not the node's alone"
        return f"node on processor {names['node']}, victims' clients on {names['victims']}, attackers on {names['attackers']}{shared}"

    def taken_by_the_host(self):
        """Seconds that the host took of each processor of the node and the victims, since this machine began (`steal`, proc_stat(5))."""
        ticks = os.sysconf("SC_CLK_TCK")
        with open("/proc/stat") as f:
            rows = (line.split() for line in f)
            steal = {row[0]: int(row[8]) / ticks for row in rows if row[0].startswith("cpu") and row[0] != "cpu"}
        return {cpu: steal.get(f"cpu{cpu}", 0.0) for cpu in self.node | self.victims}

    def place_node(self):
        """In the child, before it becomes the node; it ends with whoever measures."""
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
        os.sched_setaffinity(0, self.node)

    def place_victim(self):
        os.sched_setaffinity(0, self.victims)
        if self.first:
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))

    def place_attacker(self, idle=True):
        """It, and whatever it starts; it ends with whoever measures, also where that is killed. Beside victims that wait for tens of
        milliseconds it may have the ordinary priority, where they are first: then others' work on this machine does not take its place."""
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        os.sched_setaffinity(0, self.attackers)
        if idle or not self.first:
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
