"""Who runs where: in the field attackers and victims are on machines of their own, and take nothing of the node's processors."""
import ctypes
import os
import signal


class Grounds:
    """The node has one processor, with the kernel's workers that do its storage's work; who measures and who attacks have the others.

    Where there are three and more, victims have one for themselves. Where there are two, attackers run on the victims', and only while
    nobody else wants it (SCHED_IDLE). A system call is not broken off for that, so attackers' calls are short (`attacks.CALL`).
    """

    def __init__(self):
        mine = sorted(os.sched_getaffinity(0))
        self.node, *others = [{cpu} for cpu in mine]
        self.victims = others[0] if others else self.node
        self.attackers = set().union(*others[1:]) or self.victims
        self.apart = bool(others)

    def says(self):
        if not self.apart:
            return "one processor for node, victims and attackers: what is measured is not the node alone"
        names = {who: ",".join(map(str, sorted(cpus))) for who, cpus in vars(self).items() if isinstance(cpus, set)}
        shared = " when they do not want it" if self.attackers == self.victims else ""
        return f"node on processor {names['node']}, victims' clients on {names['victims']}, attackers on {names['attackers']}{shared}"

    def place_node(self):
        """In the child, before it becomes the node."""
        os.sched_setaffinity(0, self.node)

    def place_victim(self):
        os.sched_setaffinity(0, self.victims)

    def place_attacker(self):
        """It, and whatever it starts; it ends with whoever measures, also where that is killed."""
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        os.sched_setaffinity(0, self.attackers)
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
