# A process that does what it is told, one line in, one line out: locks are held by processes, so
# a test of locks needs several, and so does one of files that another process keeps open.
import fcntl, mmap, os, struct, sys

files = {}

def flags(text):
    value = 0
    for name in text.split("+"):
        value |= getattr(os, "O_" + name)
    return value

def lock(file, kind, start, length, command):
    kind = {"read": fcntl.F_RDLCK, "write": fcntl.F_WRLCK, "un": fcntl.F_UNLCK}[kind]
    request = struct.pack("hhqqi4x", kind, 0, int(start), int(length), 0)
    answer = fcntl.fcntl(files[file], command, request)
    return struct.unpack("hhqqi4x", answer)

def act(verb, words):
    if verb == "open":
        file, how, path = words
        files[file] = os.open(path, flags(how), 0o644)
        return "ok"
    if verb == "close":
        os.close(files.pop(words[0]))
        return "ok"
    if verb == "lock":
        lock(*words, fcntl.F_SETLK)
        return "ok"
    if verb == "lockw":
        lock(*words, fcntl.F_SETLKW)
        return "ok"
    if verb == "test":
        kind, _, start, length, _ = lock(*words, fcntl.F_GETLK)
        name = {fcntl.F_RDLCK: "read", fcntl.F_WRLCK: "write", fcntl.F_UNLCK: "un"}[kind]
        return "un" if name == "un" else f"{name} {start} {length}"
    if verb == "flock":
        file, how = words
        value = 0
        for name in how.split("+"):
            value |= getattr(fcntl, "LOCK_" + name)
        fcntl.flock(files[file], value)
        return "ok"
    if verb == "write":
        file, offset, text = words
        os.pwrite(files[file], text.encode(), int(offset))
        return "ok"
    if verb == "read":
        file, offset, length = words
        return "=" + os.pread(files[file], int(length), int(offset)).decode()
    if verb == "fstat":
        attr = os.fstat(files[words[0]])
        return f"size={attr.st_size} nlink={attr.st_nlink} mode={attr.st_mode:o}"
    if verb == "truncate":
        os.ftruncate(files[words[0]], int(words[1]))
        return "ok"
    if verb == "chmod":
        os.fchmod(files[words[0]], int(words[1], 8))
        return "ok"
    if verb == "fsync":
        os.fsync(files[words[0]])
        return "ok"
    if verb == "link":
        file, path = words
        # With a directory given it is linkat(2), which can follow the link in /proc.
        root = os.open("/", os.O_RDONLY)
        os.link(f"/proc/self/fd/{files[file]}", path, src_dir_fd=root, follow_symlinks=True)
        os.close(root)
        return "ok"
    if verb == "stat":
        return f"size={os.stat(words[0]).st_size}"
    if verb == "map":
        file, length = words
        files["map"] = mmap.mmap(files[file], int(length), mmap.MAP_SHARED)
        return "ok"
    if verb == "mapread":
        return "=" + files["map"][int(words[0]):int(words[0]) + int(words[1])].decode()
    if verb == "mapwrite":
        text = words[1].encode()
        files["map"][int(words[0]):int(words[0]) + len(text)] = text
        files["map"].flush()
        return "ok"
    return "unknown"

for line in sys.stdin:
    verb, *words = line.split()
    try:
        answer = act(verb, words)
    except OSError as error:
        answer = f"error {error.errno}"
    print(answer, flush=True)
