"""The C library of Python's module `sqlite3`, and the structs of its interface to the system.

A *VFS* is SQLite's interface to the operating system, and *methods* are those of an open file
(https://www.sqlite.org/vfs.html). Both are tables of function pointers. Pointers to data are
integers here, because SQLite gives some of them more content than their C type shows.
"""

import _sqlite3
import ctypes
import sqlite3
from ctypes import CFUNCTYPE, c_char_p, c_double, c_int, c_int64, c_void_p

OK = 0
FULL = 13
IOERR = 10
IOERR_READ = IOERR | 1 << 8
IOERR_WRITE = IOERR | 3 << 8
IOERR_FSYNC = IOERR | 4 << 8
IOERR_TRUNCATE = IOERR | 6 << 8
IOERR_DELETE = IOERR | 10 << 8
IOERR_LOCK = IOERR | 15 << 8
IOERR_SHMLOCK = IOERR | 20 << 8
CANTOPEN = 14

OPEN_CREATE = 0x4
OPEN_JOURNALS = 0x800 | 0x4000 | 0x80000
"""The flags of a main journal, a super-journal and a -wal file."""

LOCK_NONE = 0
LOCK_RESERVED = 2
SHM_UNLOCK = 1
SHM_LOCK = 2
SHM_SHARED = 4
SHM_EXCLUSIVE = 8

OpenFunction = CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_int, c_void_p)
DeleteFunction = CFUNCTYPE(c_int, c_void_p, c_void_p, c_int)
RandomnessFunction = CFUNCTYPE(c_int, c_void_p, c_int, c_void_p)
SleepFunction = CFUNCTYPE(c_int, c_void_p, c_int)
TimeFunction = CFUNCTYPE(c_int, c_void_p, ctypes.POINTER(c_double))
TimeInt64Function = CFUNCTYPE(c_int, c_void_p, ctypes.POINTER(c_int64))

FileFunction = CFUNCTYPE(c_int, c_void_p)
TransferFunction = CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_int64)
TruncateFunction = CFUNCTYPE(c_int, c_void_p, c_int64)
FileIntFunction = CFUNCTYPE(c_int, c_void_p, c_int)
FilePointerFunction = CFUNCTYPE(c_int, c_void_p, c_void_p)
ShmMapFunction = CFUNCTYPE(c_int, c_void_p, c_int, c_int, c_int, c_void_p)
ShmLockFunction = CFUNCTYPE(c_int, c_void_p, c_int, c_int, c_int)


class Vfs(ctypes.Structure):
    """`sqlite3_vfs`. The functions that stay the library's own are plain pointers."""

    _fields_ = (
        ("iVersion", c_int),
        ("szOsFile", c_int),
        ("mxPathname", c_int),
        ("pNext", c_void_p),
        ("zName", c_char_p),
        ("pAppData", c_void_p),
        ("xOpen", OpenFunction),
        ("xDelete", DeleteFunction),
        ("xAccess", c_void_p),
        ("xFullPathname", c_void_p),
        ("xDlOpen", c_void_p),
        ("xDlError", c_void_p),
        ("xDlSym", c_void_p),
        ("xDlClose", c_void_p),
        ("xRandomness", RandomnessFunction),
        ("xSleep", SleepFunction),
        ("xCurrentTime", TimeFunction),
        ("xGetLastError", c_void_p),
        ("xCurrentTimeInt64", TimeInt64Function),
        ("xSetSystemCall", c_void_p),
        ("xGetSystemCall", c_void_p),
        ("xNextSystemCall", c_void_p),
    )


class Methods(ctypes.Structure):
    """`sqlite3_io_methods`."""

    _fields_ = (
        ("iVersion", c_int),
        ("xClose", FileFunction),
        ("xRead", TransferFunction),
        ("xWrite", TransferFunction),
        ("xTruncate", TruncateFunction),
        ("xSync", FileIntFunction),
        ("xFileSize", FilePointerFunction),
        ("xLock", FileIntFunction),
        ("xUnlock", FileIntFunction),
        ("xCheckReservedLock", FilePointerFunction),
        ("xFileControl", c_void_p),
        ("xSectorSize", c_void_p),
        ("xDeviceCharacteristics", c_void_p),
        ("xShmMap", ShmMapFunction),
        ("xShmLock", ShmLockFunction),
        ("xShmBarrier", c_void_p),
        ("xShmUnmap", FileIntFunction),
        ("xFetch", c_void_p),
        ("xUnfetch", c_void_p),
    )


class File(ctypes.Structure):
    """`sqlite3_file`: the head of an open file, whose methods are none if it is closed."""

    _fields_ = (("pMethods", ctypes.POINTER(Methods)),)


def load_library() -> ctypes.CDLL:
    """Returns the library that this process's `sqlite3` uses.

    RuntimeError if Python was built with a copy of its own, whose functions are not exported.
    """
    # A look-up in a shared library also finds the functions of those that it is linked to.
    library = ctypes.CDLL(_sqlite3.__file__)
    try:
        library.sqlite3_libversion.restype = c_char_p
        version = library.sqlite3_libversion().decode()
    except AttributeError as error:
        raise RuntimeError(
            f"{_sqlite3.__file__} contains SQLite, so its disk cannot be simulated (expected a "
            "Python that is linked to a shared libsqlite3)"
        ) from error
    if version != sqlite3.sqlite_version:
        raise RuntimeError(f"found SQLite {version} (expected {sqlite3.sqlite_version})")
    library.sqlite3_vfs_find.argtypes = (c_char_p,)
    library.sqlite3_vfs_find.restype = ctypes.POINTER(Vfs)
    library.sqlite3_vfs_register.argtypes = (ctypes.POINTER(Vfs), c_int)
    library.sqlite3_vfs_unregister.argtypes = (ctypes.POINTER(Vfs),)
    library.sqlite3_randomness.argtypes = (c_int, c_void_p)
    library.sqlite3_randomness.restype = None
    return library
