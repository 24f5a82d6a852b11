"""A machine without a disk: QEMU without KVM, one of Debian's cloud kernels, and programs of this machine in memory."""

import os
import re
import shutil
import subprocess
import sys

TOOLS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TARGET = os.environ.get("CARGO_TARGET_DIR", os.path.join(TOOLS, "../target"))
# What the guest calls this machine: QEMU's network hands it to loopback.
GATEWAY = "10.0.2.2"
BASE = """bash awk gawk basename blkdiscard blockdev cat chmod chown cmp column cp cut date dd df diff dirname dmesg du e2fsck env expr false fio find
findmnt flock fstrim getopt grep gzip head hostname id ip kill ln losetup ls lsblk lsmod mkdir mkfifo mkfs.ext4 mkfs.xfs mknod mktemp modinfo modprobe
mount mv nproc od printf ps python3 readlink realpath rm rmdir rmmod sed seq setpriv sha256sum sleep sort stat stdbuf sync tail tee test timeout touch tr
true truncate udevadm umount uname uniq uuidgen wc which xargs xfs_io xxd zgrep""".split()
# Every script begins so.
BEGIN = """#!/bin/bash
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev; mount -t tmpfs tmpfs /tmp; mount -t tmpfs tmpfs /run
mkdir -p /dev/shm; mount -t tmpfs tmpfs /dev/shm; mount -t debugfs none /sys/kernel/debug 2>/dev/null
ln -sf /proc/self/fd /dev/fd
for module in MODULES; do modprobe $module 2>/dev/null; done
mount -t configfs none /sys/kernel/config 2>/dev/null
ip link set lo up; ip addr add 10.0.2.15/24 dev eth0; ip link set eth0 up; ip route add default via 10.0.2.2
echo # what the firmware has written ends here
off() { echo "guest: through"; echo o >/proc/sysrq-trigger; sleep 10; }
"""


def missing(*programs):
    """Why there can be no guest here, if so."""
    if subprocess.run([f"{TOOLS}/guest-qemu", "--version"], capture_output=True).returncode:
        return "qemu-system-x86_64 (tools/setup guest, or QEMU=fetch)"
    for program in ("bash", "gawk", "cpio", "depmod", "modprobe", *programs):
        if not which(program):
            return f"{program} (tools/setup guest)"
    return None


def which(program):
    return shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin:/sbin")


def kernel(series):
    """The version of Debian's newest kernel of this series; `None` where it cannot be fetched."""
    found = subprocess.run([f"{TOOLS}/guest-kernel", series], capture_output=True, text=True)
    return found.stdout.strip() if found.returncode == 0 else None


def put(root, program):
    """A program with its libraries, if it is here; or what a program loads, which stays where it is."""
    path = program if "/" in program else which(program)
    if not path:
        return
    libraries = subprocess.run(["ldd", os.path.realpath(path)], capture_output=True, text=True).stdout
    for name, there in [(path, program if "/" in program else f"/usr/bin/{program}")] + [(name, re.sub("^/lib", "/usr/lib", name)) for name in re.findall(r"(/[^ )]*)", libraries)]:
        os.makedirs(os.path.dirname(root + there), exist_ok=True)
        if not os.path.exists(root + there):
            shutil.copy(name, root + there)


class Guest:
    """What it has is put into `root`; then it boots and runs `init`, which ends with `off`."""

    def __init__(self, work, version, modules, programs=()):
        self.work, self.version, self.modules, self.root = work, version, ["virtio_pci", "virtio_net", "crc32c_generic", *modules], f"{work}/root"
        for folder in "usr/bin usr/lib usr/lib64 proc sys dev tmp run mnt etc root var/lib".split():
            os.makedirs(f"{self.root}/{folder}")
        for name, to in (("bin", "usr/bin"), ("sbin", "usr/bin"), ("lib", "usr/lib"), ("lib64", "usr/lib64"), ("usr/sbin", "bin")):
            os.symlink(to, f"{self.root}/{name}")
        for program in [*BASE, *programs]:
            put(self.root, program)
        os.symlink("bash", f"{self.root}/usr/bin/sh")
        python = "/usr/lib/python3." + str(sys.version_info.minor)
        if os.path.isdir(python):
            shutil.copytree(python, self.root + python, ignore=shutil.ignore_patterns("test*", "*.pyc", "dist-packages", "config-*"))
        self.write("etc/passwd", "root:x:0:0:root:/root:/bin/bash\n")
        self.put_modules()

    def put_modules(self):
        kernel = f"{TARGET}/guest/{self.version}"
        here, there, needed = f"{kernel}/lib/modules/{self.version}", f"{self.root}/lib/modules/{self.version}", []
        subprocess.run([which("depmod"), "-b", kernel, self.version], check=True)
        for module in self.modules:
            shown = subprocess.run([which("modprobe"), "-d", kernel, "-S", self.version, "--show-depends", module], capture_output=True, text=True).stdout
            needed += [line.split()[1] for line in shown.splitlines() if line.startswith("insmod")]
        for path in dict.fromkeys(needed):
            to = os.path.join(there, os.path.relpath(os.path.realpath(path), os.path.realpath(here)))
            os.makedirs(os.path.dirname(to), exist_ok=True)
            shutil.copy(path, to)
        for name in ("modules.builtin", "modules.order", "modules.builtin.modinfo"):
            shutil.copy(f"{here}/{name}", there)
        subprocess.run([which("depmod"), "-b", self.root, self.version], check=True)
        os.makedirs(f"{self.root}/boot")
        shutil.copy(f"{kernel}/boot/config-{self.version}", f"{self.root}/boot/")

    def write(self, path, text, mode=0o644):
        os.makedirs(os.path.dirname(f"{self.root}/{path}"), exist_ok=True)
        with open(f"{self.root}/{path}", "w") as f:
            f.write(text)
        os.chmod(f"{self.root}/{path}", mode)

    def boot(self, init, limit, *more):
        """Starts it, for so many seconds at most. Its console is a stream of lines. `more`: for QEMU."""
        self.write("init", BEGIN.replace("MODULES", " ".join(self.modules)) + init, 0o755)
        with open(f"{self.work}/initrd", "wb") as f:
            subprocess.run("find . | cpio -o -H newc --quiet | gzip -1", shell=True, check=True, cwd=self.root, stdout=f)
        qemu = [f"{TOOLS}/guest-qemu", "-machine", "pc", "-accel", "tcg", "-m", "2048", "-smp", "2", "-nographic", "-no-reboot", "-kernel",
                f"{TARGET}/guest/{self.version}/boot/vmlinuz-{self.version}", "-initrd", f"{self.work}/initrd", "-append", "console=ttyS0 quiet panic=-1",
                "-nic", "user,model=virtio-net-pci", *more]
        return subprocess.Popen(["timeout", str(limit), *qemu], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                errors="replace")
