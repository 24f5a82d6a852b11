"""Sessions of libiscsi, by its shared library: SCSI commands as bytes, and what became of them."""

import ctypes, ctypes.util, struct

GOOD, CHECK, BUSY, CONFLICT = 0, 2, 8, 0x18
UNAVAILABLE = (CHECK, 2, 0x040C)  # NOT READY, TARGET PORT IN UNAVAILABLE STATE
PREFIX = "iqn.2026-11.local.henge"


class Data(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("data", ctypes.c_char_p)]


class Sense(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_ubyte), ("key", ctypes.c_int), ("code", ctypes.c_int), ("bits", ctypes.c_uint32)]


class Task(ctypes.Structure):
    _fields_ = [("status", ctypes.c_int), ("cdb_size", ctypes.c_int), ("direction", ctypes.c_int),
                ("expected", ctypes.c_int), ("cdb", ctypes.c_ubyte * 16), ("residual_status", ctypes.c_int),
                ("residual", ctypes.c_size_t), ("sense", Sense), ("size", ctypes.c_int),
                ("data", ctypes.POINTER(ctypes.c_ubyte))]


def library():
    """The library, or None where there is none."""
    try:
        lib = ctypes.CDLL("libiscsi.so.7")
    except OSError:
        return None
    lib.iscsi_create_context.restype = ctypes.c_void_p
    lib.iscsi_get_error.restype = ctypes.c_char_p
    lib.iscsi_scsi_command_sync.restype = ctypes.POINTER(Task)
    lib.scsi_create_task.restype = ctypes.POINTER(Task)
    return lib


class Session:
    """One session, past its first unit attention."""

    def __init__(self, node, disk, number, name="host", timeout=20):
        self.lib = library()
        self.context = ctypes.c_void_p(self.lib.iscsi_create_context(f"{PREFIX}:{name}".encode()))
        self.lib.iscsi_set_isid_random(self.context, ctypes.c_uint32(number), ctypes.c_uint32(0))
        self.lib.iscsi_set_session_type(self.context, 2)
        self.lib.iscsi_set_targetname(self.context, f"{PREFIX}:{disk}".encode())
        self.lib.iscsi_set_noautoreconnect(self.context, 1)
        self.lib.iscsi_set_timeout(self.context, timeout)
        portal = f"{node.address}:{node.iscsi}".encode()
        if self.lib.iscsi_full_connect_sync(self.context, portal, 0) != 0:
            raise ConnectionError(self.lib.iscsi_get_error(self.context).decode())

    def close(self):
        self.lib.iscsi_destroy_context(self.context)

    def command(self, cdb, read=0, write=b""):
        """Status, sense key and code, and what was read."""
        cdb = bytes(cdb)
        direction = 1 if read else 2 if write else 0
        task = self.lib.scsi_create_task(len(cdb), cdb, direction, read or len(write))
        data = Data(len(write), write)
        done = self.lib.iscsi_scsi_command_sync(self.context, 0, task, ctypes.byref(data) if write else None)
        if not done:
            raise ConnectionError(self.lib.iscsi_get_error(self.context).decode())
        task = done.contents
        found = (task.status, task.sense.key, task.sense.code) if task.status == CHECK else task.status
        got = bytes(task.data[:task.size]) if read and task.status == GOOD else b""
        self.lib.scsi_free_scsi_task(done)
        return found, got

    def ready(self):
        return self.command(bytes(6))[0]

    def attention(self, code):
        """Whether the next thing that the session is told is this."""
        return self.ready() == (CHECK, 6, code)

    def read(self, lba, blocks=1):
        return self.command(struct.pack(">BBIBHB", 0x28, 0, lba, 0, blocks, 0), read=512 * blocks)

    def write(self, lba, data):
        return self.command(struct.pack(">BBIBHB", 0x2A, 0, lba, 0, len(data) // 512, 0), write=data)[0]

    def manage(self, function):
        """A task management function; whether it is complete. 4: CLEAR TASK SET, 5: LOGICAL UNIT RESET, 6: TARGET WARM RESET, 7: COLD."""
        status = self.lib.iscsi_task_mgmt_sync(self.context, 0, function, ctypes.c_uint32(0xFFFFFFFF), ctypes.c_uint32(0))
        return status == 0

    def orwrite(self, lba, data):
        return self.command(struct.pack(">BBQIBB", 0x8B, 0, lba, len(data) // 512, 0, 0), write=data)[0]

    def compare_and_write(self, lba, old, new):
        return self.command(struct.pack(">BBQ3xBBB", 0x89, 0, lba, len(new) // 512, 0, 0), write=old + new)[0]

    def flush(self):
        return self.command([0x35] + 9 * [0])[0]

    def capacity(self):
        """Bytes, by READ CAPACITY(16)."""
        status, data = self.command([0x9E, 0x10] + 8 * [0] + [0, 0, 0, 32, 0, 0], read=32)
        return (struct.unpack(">QI", data[:12])[0] + 1) * 512 if status == GOOD else status

    def physical_block(self):
        """Bytes that are best written whole."""
        status, data = self.command([0x9E, 0x10] + 8 * [0] + [0, 0, 0, 32, 0, 0], read=32)
        return 512 << (data[13] & 0xF) if status == GOOD else status

    def page(self, number):
        return self.command([0x12, 1, number, 1, 0, 0], read=256)[1]

    def world_wide_name(self):
        page = self.page(0x83)
        at = page.find(bytes([0x01, 0x03, 0, 8]))
        return page[at + 4:at + 12].hex()

    def groups(self):
        """Access states by the numbers of target port groups."""
        data = self.command([0xA3, 0x0A, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0], read=256)[1]
        return {struct.unpack(">H", data[i + 2:i + 4])[0]: data[i] & 0xF for i in range(4, len(data), 12)}

    def own_group(self):
        page = self.page(0x83)
        at = page.find(bytes([0x51, 0x95, 0, 4]))
        return struct.unpack(">H", page[at + 6:at + 8])[0]

    def reserve(self, action, kind=0, key=0, new=0):
        """PERSISTENT RESERVE OUT, not to outlive a loss of power."""
        cdb = [0x5F, action, kind, 0, 0, 0, 0, 0, 24, 0]
        return self.command(cdb, write=struct.pack(">QQ8x", key, new))[0]

    def keys(self):
        status, data = self.command([0x5E, 0, 0, 0, 0, 0, 0, 2, 0, 0], read=512)
        length = struct.unpack(">I", data[4:8])[0] if status == GOOD else 0
        return [struct.unpack(">Q", data[i:i + 8])[0] for i in range(8, 8 + length, 8)] if status == GOOD else status

    def reservation(self):
        """Key and type of who holds it."""
        status, data = self.command([0x5E, 1, 0, 0, 0, 0, 0, 0, 64, 0], read=64)
        if status != GOOD:
            return status
        return (struct.unpack(">Q", data[8:16])[0], data[21] & 0xF) if data[7] else None
