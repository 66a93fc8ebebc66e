"""The live Python interpreter of a machine.

The agent starts this script once and keeps it. File descriptor 3 is a stream
socket to the agent that carries frames: a length (four bytes, big endian) and
that many bytes of JSON. Standard output and standard error are pipes that the
agent reads, so whatever writes to descriptors 1 and 2 is captured: print, C
code and child processes alike.

From the agent: {"op":"run","id","code","env","cwd","begin"}, {"op":"env","set","unset"},
{"op":"entropy"} and {"op":"reseed"}, which is more of it. To the agent: {"op":"ready"}, {"op":"result"} for each
displayed object, {"op":"done"} at the end of each call. "numbers" in ready and
done says where random generators lie in memory: see new_generators.

User code runs in the main thread, with a module of its own as __main__. SIGINT
raises KeyboardInterrupt only while user code runs (State.active). POKE asks to
read the socket although a call is running: the agent sends it when the machine
was restored in the middle of a call.
"""
import _signal
import _thread
import array
import ast
import base64
import builtins
import fcntl
import importlib
import importlib.util
import io
import json
import linecache
import os
import signal
import sys
import termios
import time
import traceback
import types

OURS = __file__
POKE = signal.SIGRTMAX
MAX_RESULT = 8 << 20       # bytes of all representations of one result; what is over is dropped
MAX_TRACEBACK = 1 << 20    # characters
MAX_VALUE = 64 << 10       # characters of an exception's message
MAX_SOURCES = 16 << 20     # characters of old cells that tracebacks can still show
AWAIT = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
CO_COROUTINE = 0x80

json_text = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def encode(message):
    return json_text(message).encode("utf-8", "backslashreplace")


class State:
    """What the signal handlers and the rest of this file share."""
    active = False      # user code is running
    hold = 0            # an interrupt must wait: a frame is being written
    start = None        # where the interpreter began, until a call has said where to begin
    pending = False     # an interrupt has waited
    interrupted = 0.0   # when the last interrupt was raised
    forked = False      # this process is a fork of the interpreter
    inbox = bytearray()
    last = None         # the stream that was written to last
    loop = None         # the event loop of top-level await
    flags = 0           # __future__ features that earlier cells switched on
    cell = 0
    generators = {}     # that the agent knows, by module
    extra = None        # the module of results.py
    sources = []        # names of registered cells, oldest first
    source_size = 0
    main = _thread.get_ident()
    lock = _thread.allocate_lock()


# ---- the socket --------------------------------------------------------------

def move_high(fd):
    """Moves the socket out of the way of programs that count descriptors."""
    try:
        high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 500)
    except OSError:
        high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(fd)
    return high


def send(body):
    """Sends one frame in one write. An interrupt waits for its end."""
    if State.forked:
        return
    data = memoryview(len(body).to_bytes(4, "big") + body)
    ours = _thread.get_ident() == State.main
    if ours:
        State.hold += 1
    try:
        with State.lock:
            State.last = SOCKET
            while data:
                data = data[os.write(SOCKET, data):]
    except (BrokenPipeError, ConnectionResetError):
        os._exit(0)     # the agent is gone
    finally:
        if ours:
            State.hold -= 1
    if ours and State.pending and not State.hold:
        State.pending = False
        if State.active:
            raise KeyboardInterrupt


def next_frame():
    """Takes one complete frame out of the inbox, if there is one."""
    box = State.inbox
    if len(box) < 4:
        return None
    end = 4 + int.from_bytes(box[:4], "big")
    if len(box) < end:
        return None
    body = bytes(box[4:end])
    del box[:end]
    return json.loads(body)


def receive():
    while True:
        message = next_frame()
        if message is not None:
            return message
        data = os.read(SOCKET, 1 << 18)
        if not data:
            os._exit(0)  # the agent is gone
        State.inbox += data


# ---- signals -----------------------------------------------------------------

def on_interrupt(signum, frame):
    if not State.active:
        return
    now = time.monotonic()
    if now - State.interrupted < 0.01:
        return  # the last one is still on its way out of the user's code
    State.interrupted = now
    if State.hold:
        State.pending = True
        return
    raise KeyboardInterrupt


def on_poke(signum, frame):
    if not State.active:
        return  # the main loop reads the socket anyway
    State.hold += 1
    try:
        ready = int.from_bytes(fcntl.ioctl(SOCKET, termios.FIONREAD, b"\0\0\0\0"), sys.byteorder)
        if ready:
            State.inbox += os.read(SOCKET, ready)
        message = next_frame()
        while message is not None:
            housekeeping(message)
            message = next_frame()
    finally:
        State.hold -= 1
    if State.pending and not State.hold:
        State.pending = False
        raise KeyboardInterrupt


def in_child():
    """A fork of the interpreter is an ordinary process, not the REPL."""
    State.forked = True
    try:
        os.close(SOCKET)
    except OSError:
        pass
    if signal.getsignal(signal.SIGINT) is on_interrupt:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(POKE, signal.SIG_DFL)


# ---- output ------------------------------------------------------------------

class Stream(io.TextIOWrapper):
    """Standard output or error. Before it writes, what went to the other one
    (or a result) must have been read, so that the agent sees the order.

    The layers below are C code: an interrupt between the write of a Python
    layer and the bookkeeping above it would write the same bytes twice."""

    def write(self, text):
        if State.last is not self:
            take_turn(self)
        return io.TextIOWrapper.write(self, text)


def take_turn(stream):
    before, State.last = State.last, stream
    if before is None or State.forked:
        return
    try:
        if before is SOCKET:
            fd, ask = SOCKET, termios.TIOCOUTQ
        else:
            fd, ask = before.fileno(), termios.FIONREAD
        end = time.monotonic() + 0.05
        while any(fcntl.ioctl(fd, ask, b"\0\0\0\0")) and time.monotonic() < end:
            time.sleep(0.00002)
    except (OSError, ValueError):
        pass  # only the order is at stake


def open_stream(fd):
    raw = io.FileIO(fd, "w", closefd=False)
    raw.name = "<stdout>" if fd == 1 else "<stderr>"
    text = Stream(io.BufferedWriter(raw), encoding="utf-8", errors="backslashreplace", line_buffering=True)
    text.mode = "w"
    return text


def open_streams():
    sys.stdout = sys.__stdout__ = open_stream(1)
    sys.stderr = sys.__stderr__ = open_stream(2)


def find_libc_flush():
    try:
        import ctypes
        libc = ctypes.CDLL(None)
        streams = [ctypes.c_void_p.in_dll(libc, n) for n in ("stdout", "stderr")]
        flush = libc.fflush
        out = streams[0]
        # The C library never buffers stderr.
        return lambda: flush(out)
    except Exception:
        return lambda: None


def flush_output():
    streams = [sys.__stdout__, sys.__stderr__]
    if sys.stdout is not streams[0]:
        streams.append(sys.stdout)
    if sys.stderr is not streams[1]:
        streams.append(sys.stderr)
    for stream in streams:
        try:
            stream.flush()
        except Exception:
            pass
    flush_libc()
    if sys.__stdout__.closed or sys.__stderr__.closed:
        open_streams()  # user code closed one; the descriptor is still open


# ---- results -----------------------------------------------------------------

METHODS = (
    ("text/html", "_repr_html_"), ("text/markdown", "_repr_markdown_"),
    ("image/svg+xml", "_repr_svg_"), ("image/png", "_repr_png_"),
    ("image/jpeg", "_repr_jpeg_"), ("application/pdf", "_repr_pdf_"),
    ("text/latex", "_repr_latex_"), ("application/json", "_repr_json_"),
    ("application/javascript", "_repr_javascript_"),
)
PLAIN = (int, bool, str, bytes)
FRAME_MIME = "application/vnd.ramet.data+json"
CHART_MIME = "application/vnd.ramet.chart+json"


def bundle(value):
    """The representations of a value: MIME type to text or bytes."""
    kind = type(value)
    if kind in PLAIN:
        return {"text/plain": repr(value)}
    if SHELL is not None:
        return SHELL.display_formatter.format(value)[0]
    if is_figure(value):
        return show_figure(value)
    data = {}
    if is_frame(value):
        add(data, FRAME_MIME, lambda: extra().frame_data(value))
    if not isinstance(value, type):
        for mime, method in METHODS:
            found = getattr(kind, method, None) and getattr(value, method)()
            if isinstance(found, tuple):
                found = found[0]
            if found is not None:
                data[mime] = found
        if getattr(kind, "_repr_mimebundle_", None):
            found = value._repr_mimebundle_(include=None, exclude=None)
            data.update((found[0] if isinstance(found, tuple) else found) or {})
    data.setdefault("text/plain", repr(value))
    return data


def add(data, mime, make):
    """Adds a representation. The others are of use without it."""
    try:
        found = make()
    except Exception:
        return
    if found is not None:
        data[mime] = found


def is_frame(value):
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(value, getattr(pandas, "DataFrame", ()))


def extra():
    """The module of results.py, which few programs need."""
    if State.extra is None:
        size = os.fstat(EXTRA).st_size
        module = types.ModuleType("ramet_results")
        exec(compile(os.pread(EXTRA, size, 0), OURS, "exec"), module.__dict__)
        State.extra = module
    return State.extra


def pack(data, main):
    """Makes a bundle fit for a frame: text only, and bounded."""
    packed, dropped, room = {}, 0, MAX_RESULT
    for mime, value in data.items():
        if isinstance(value, (bytes, bytearray)):
            value = base64.b64encode(value).decode()
        elif not isinstance(value, str):
            value = json.dumps(value, default=repr)
        elif not value.isascii():
            value = value.encode("utf-8", "backslashreplace").decode()
        size = len(value) if value.isascii() else len(value.encode())
        if size > room:
            dropped += size
            if mime != "text/plain":
                continue
            value = value[:room // 4]
            size = len(value.encode())
            dropped -= size
        room -= size
        packed[str(mime)] = value
    return {"data": packed, "main": main, "dropped": dropped}


def emit(data):
    """Sends a displayed object."""
    flush_output()
    message = pack(data, False)
    message["op"] = "result"
    send(encode(message))


def display(*values):
    """Shows values in their richest form."""
    for value in values:
        emit(bundle(value))


# ---- matplotlib --------------------------------------------------------------

class PyplotHook:
    """Waits in sys.meta_path for matplotlib.pyplot, to make its show work."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name != "matplotlib.pyplot":
            return None
        sys.meta_path.remove(cls)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module):
                run(module)
                original = module.show

                def show(*args, **kwargs):
                    if not show_figures():
                        return original(*args, **kwargs)

                module.show = show
                try:
                    extra().watch_axes(sys.modules["matplotlib.axes"].Axes)
                except Exception:
                    pass  # box plots will be charts of lines

            spec.loader.exec_module = exec_module
        return spec


def is_figure(value):
    figure = sys.modules.get("matplotlib.figure")
    return figure is not None and isinstance(value, getattr(figure, "Figure", ()))


def draw(figure):
    png = io.BytesIO()
    figure.savefig(png, format="png", bbox_inches="tight")
    return png.getvalue()


def show_figure(figure):
    """The representations of a figure. Its chart has labels once it has been drawn."""
    data = {"text/plain": repr(figure), "image/png": draw(figure)}
    add(data, CHART_MIME, lambda: extra().chart(figure))
    return data


def show_figures(already=None):
    """Sends the open figures and closes them. False: not our backend."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None or not hasattr(pyplot, "get_backend"):
        return False
    if pyplot.get_backend().lower() != "agg":
        return False
    for number in pyplot.get_fignums():
        figure = pyplot.figure(number)
        if figure is not already:
            emit(show_figure(figure))
    pyplot.close("all")
    return True


# ---- running a cell ----------------------------------------------------------

def remember(name, code):
    """Lets tracebacks show the lines of a cell."""
    linecache.cache[name] = (len(code), None, code.splitlines(True), name)
    State.sources.append(name)
    State.source_size += len(code)
    while State.source_size > MAX_SOURCES and len(State.sources) > 1:
        old = linecache.cache.pop(State.sources.pop(0), None)
        if old is not None:
            State.source_size -= old[0]


def to_ast(code, name):
    return compile(code, name, "exec", ast.PyCF_ONLY_AST | AWAIT | State.flags, True)


def parse(code, name):
    """Parses a cell. What is not Python may be IPython's: magics, !commands."""
    remember(name, code)
    problem = None
    try:
        tree = to_ast(code, name)
    except SyntaxError as e:
        if SHELL is None:
            raise
        problem = e
    if problem is None:
        if SHELL is None or not is_automagic(tree.body):
            return tree
        code = "%" + code.lstrip()
    changed = SHELL.transform_cell(code)
    if changed.strip() == code.strip():
        raise problem.with_traceback(None)
    remember(name, changed)
    return to_ast(changed, name)


def is_automagic(body):
    """A lone word such as ls that is no variable but a magic."""
    if len(body) != 1 or not isinstance(body[0], ast.Expr) or not isinstance(body[0].value, ast.Name):
        return False
    name = body[0].value.id
    return (SHELL.automagic and name not in NAMESPACE and not hasattr(builtins, name)
            and SHELL.find_line_magic(name) is not None)


def run_code(tree, name, mode):
    return run_object(compile(tree, name, mode, AWAIT | State.flags, True))


def run_object(code):
    State.flags |= code.co_flags & FUTURES
    if code.co_flags & CO_COROUTINE:
        return wait_for(eval(code, NAMESPACE))
    return eval(code, NAMESPACE)


def compile_expression(code, name):
    """The short way for a cell of one short expression; None: take the long one."""
    if len(code) > 200 or "\n" in code or code.isidentifier() or code[:1] in "%!?" or code[-1:] == "?":
        return None
    if SHELL is not None and SHELL.ast_transformers:
        return None
    try:
        compiled = compile(code, name, "eval", AWAIT | State.flags, True)
    except (SyntaxError, ValueError):
        return None
    remember(name, code)
    return compiled


def wait_for(coroutine):
    import asyncio
    if State.loop is None or State.loop.is_closed():
        State.loop = asyncio.new_event_loop()
    asyncio.set_event_loop(State.loop)
    task = State.loop.create_task(coroutine)
    try:
        return State.loop.run_until_complete(task)
    except BaseException:
        if not task.done():
            task.cancel()
            try:
                State.loop.run_until_complete(task)
            except BaseException:
                pass
        raise


def run_cell(code):
    """Runs a cell and returns the packed result of its last expression."""
    State.cell += 1
    name = "<cell %d>" % State.cell
    code_object = compile_expression(code, name)
    if code_object is not None:
        if SHELL is not None:
            SHELL.execution_count = State.cell
        return last_value(run_object(code_object), code)
    tree = parse(code, name)
    if SHELL is not None:
        if SHELL.ast_transformers:
            tree = SHELL.transform_ast(tree)
        SHELL.execution_count = State.cell
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = ast.Expression(tree.body.pop().value)
    if tree.body:
        run_code(tree, name, "exec")
    if last is None:
        return None
    return last_value(run_code(last, name, "eval"), code)


def last_value(value, code):
    """Packs the value of the last expression."""
    if value is None:
        return None
    builtins._ = value
    if SHELL is not None and code.rstrip().endswith(";"):
        return None  # IPython's way to keep a value silent
    result = pack(bundle(value), True)
    if is_figure(value):
        show_figures(already=value)
    return result


def run_hooks(*names):
    """Calls what libraries registered with IPython's events."""
    for name in names:
        for hook in list(SHELL.events.callbacks.get(name, ())):
            if hook not in DEFAULT_HOOKS:
                SHELL.events.trigger(name, *HOOK_ARGUMENTS.get(name, lambda: ())())
                break


def run_user(code):
    try:
        if SHELL is not None:
            run_hooks("pre_execute", "pre_run_cell")
        return run_cell(code)
    finally:
        if SHELL is not None:
            run_hooks("post_execute", "post_run_cell")
        if "matplotlib.pyplot" in sys.modules:
            show_figures()


def protect(function, *arguments):
    """Calls what may run user code. Only here do interrupts raise."""
    try:
        try:
            State.active = True
            return function(*arguments), None
        finally:
            State.active = False
    except BaseException as e:
        State.active = False
        return None, e


# ---- errors ------------------------------------------------------------------

def strip(report, seen):
    """Takes the frames of this file out of a traceback."""
    if report is None or id(report) in seen:
        return
    seen.add(id(report))
    if report.stack is not None:
        report.stack[:] = [f for f in report.stack if f.filename != OURS]
    for inner in [report.__cause__, report.__context__, *(getattr(report, "exceptions", None) or ())]:
        strip(inner, seen)


def describe(error):
    report = traceback.TracebackException(type(error), error, error.__traceback__, compact=True)
    strip(report, set())
    text = "".join(report.format())
    if len(text) > MAX_TRACEBACK:
        text = text[:MAX_TRACEBACK // 2] + "\n...\n" + text[-MAX_TRACEBACK // 2:]
    return {"name": type(error).__name__, "value": clean(str(error)[:MAX_VALUE]), "traceback": clean(text)}


def clean(text):
    return text.encode("utf-8", "backslashreplace").decode()


def report_error(error, reply):
    if isinstance(error, SystemExit):
        code = error.code
        if code is None:
            reply["code"] = 0
        elif isinstance(code, int):
            reply["code"] = code & 0xFF  # what the kernel would keep of it
        else:
            reply["code"] = 1
            text, failure = protect(str, code)
            print(text if failure is None else "<unprintable exit code>", file=sys.__stderr__)
        return
    reply["code"] = 1
    if isinstance(error, KeyboardInterrupt):
        reply["code"], reply["interrupted"] = 130, True
    info, failure = protect(describe, error)
    if failure is not None:
        name = type(error).__name__
        info = {"name": name, "value": "<unprintable>", "traceback": name + ": <unprintable>\n"}
    reply["error"] = info
    try:
        sys.__stderr__.write(info["traceback"])
    except Exception:
        pass  # the error itself carries it too


# ---- calls -------------------------------------------------------------------

class Scope:
    """Environment and working directory of one call. What the code itself
    changes stays; only the call's own settings are undone."""

    def __init__(self, env, cwd):
        self.env, self.cwd, self.saved, self.back = env, cwd, {}, None

    def enter(self):
        if self.cwd:
            try:
                self.back = os.getcwd()
            except OSError:
                self.back = None  # it was deleted
            os.chdir(self.cwd)
            self.cwd = os.getcwd()
        for key, value in (self.env or {}).items():
            self.saved[key] = os.environ.get(key)
            os.environ[key] = value

    def leave(self):
        for key, value in self.saved.items():
            if os.environ.get(key) != self.env[key]:
                continue
            if value is None:
                del os.environ[key]
            else:
                os.environ[key] = value
        if self.back is not None:
            try:
                if os.getcwd() == self.cwd:
                    os.chdir(self.back)
            except OSError:
                pass  # one of the two is gone


def begin_in(directory):
    """Moves to where the first call wants to begin, unless code has moved already."""
    start, State.start = State.start, None
    if start is None:
        return
    try:
        if os.getcwd() == start:
            os.chdir(directory)
    except OSError:
        pass  # there is no such directory: it stays


def call(message):
    number = message["id"]
    reply = {"op": "done", "id": number, "code": 0}
    State.last = None
    State.pending = False
    State.interrupted = 0.0
    if "begin" in message:
        begin_in(message["begin"])
    scope = Scope(message.get("env"), message.get("cwd"))
    failure = None
    try:
        scope.enter()
    except (OSError, ValueError) as e:
        reply["code"] = 1
        reply["start_failed"] = clean(str(e))
    else:
        if "import" in message["code"]:
            # Finders notice new files by themselves, but not within one tick
            # of the clock, nor a directory that did not exist before.
            importlib.invalidate_caches()
        result, failure = protect(run_user, message["code"])
        if failure is not None:
            report_error(failure, reply)
        elif result is not None:
            reply["result"] = result
    failure = None
    if State.forked:
        leave_fork(reply["code"])
    scope.leave()
    flush_output()
    restore_handlers()
    if len(State.generators) < len(GENERATORS):
        numbers = new_generators()
        if numbers:
            reply["numbers"] = numbers
    if len(reply) == 3 and reply["code"] == 0:
        send(b'{"op":"done","id":%d,"code":0}' % number)
    else:
        send(encode(reply))


def leave_fork(code):
    """The user's code called os.fork and the child came to its end."""
    flush_output()
    os._exit(code)


def restore_handlers():
    # _signal: the function in signal makes an enum of every answer.
    if _signal.getsignal(signal.SIGINT) is not on_interrupt:
        signal.signal(signal.SIGINT, on_interrupt)


def housekeeping(message):
    operation = message["op"]
    if operation == "env":
        for key in message.get("unset") or ():
            os.environ.pop(key, None)
        os.environ.update(message.get("set") or {})
        forget_host()
    elif operation == "entropy":
        reseed_openssl()
    elif operation == "reseed":
        reseed_openssl()
        reseed()


def forget_host():
    """Drops what the standard library remembers of the machine that this one
    was restored from. The environment is set when the machine has its name."""
    platform = sys.modules.get("platform")
    if platform is not None:
        platform._uname_cache = None
        cache = getattr(platform, "_platform_cache", None)
        if isinstance(cache, dict):
            cache.clear()


def reseed():
    """Gives the global random generators fresh state."""
    random = sys.modules.get("random")
    if random is not None and hasattr(random, "seed"):
        random.seed()
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None and hasattr(numpy_random, "seed"):
        numpy_random.seed()


def reseed_openssl():
    """Makes OpenSSL's generator, which makes keys, start again from the kernel's."""
    ssl = sys.modules.get("ssl")
    if ssl is not None and hasattr(ssl, "RAND_add"):
        ssl.RAND_add(os.urandom(32), 32.0)


def new_generators():
    """Where the global generators keep the numbers that they draw from: pairs of an
    address and a length, of those that the agent does not know yet.

    The agent writes fresh numbers there while this process stands still in a new
    machine, so that no thread draws what a sibling draws. reseed, which comes
    after it, needs the main thread, and that may have to wait for others."""
    found = []
    for name, find in GENERATORS.items():
        if name in sys.modules and name not in State.generators:
            try:
                owner, address, numbers = find(sys.modules[name])
            except Exception:
                continue  # another implementation, or it is in use just now
            State.generators[name] = owner  # it stays where it is
            found.append((address, numbers))
    return found


def random_numbers(module):
    import ctypes
    owner = module._inst
    numbers = array.array("I", owner.getstate()[1][:-1]).tobytes()
    memory = ctypes.string_at(id(owner), type(owner).__basicsize__)
    return owner, id(owner) + memory.index(numbers), len(numbers)


def numpy_numbers(module):
    import ctypes
    owner = module.mtrand._rand._bit_generator
    numbers = owner.state["state"]["key"].tobytes()
    address = owner.ctypes.state_address
    ctypes.string_at(address, len(numbers)).index(numbers)
    return owner, address, len(numbers)


GENERATORS = {"random": random_numbers, "numpy.random": numpy_numbers}


# ---- start -------------------------------------------------------------------

def no_input(prompt="", /):
    """Replaces input(): there is nobody to answer."""
    raise EOFError("standard input is not available in this interpreter; pass the data in the code or in a file")


class Leave:
    """Replaces exit and quit, which would close descriptor 0 as well."""

    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return "Use %s() to end the call" % self.name

    def __call__(self, code=None):
        raise SystemExit(code)


def load_shell(module):
    """IPython's shell around the module, or None where IPython is missing."""
    if os.environ.get("RAMET_REPL_STDLIB"):
        return None
    try:
        from IPython.core.displaypub import DisplayPublisher
        from IPython.core.interactiveshell import InteractiveShell
        from traitlets import Type
        from traitlets.config import Config
    except ImportError:
        return None
    except Exception:
        return without_shell()

    class Publisher(DisplayPublisher):
        def publish(self, data, *args, **kwargs):
            emit(data)

        def clear_output(self, wait=False):
            pass

    class Shell(InteractiveShell):
        display_pub_class = Type(Publisher)

        def system(self, command):
            import subprocess
            text = self.var_expand(command, depth=1)
            flush_output()
            code = subprocess.call(text, shell=True, executable="/bin/bash" if os.path.exists("/bin/bash") else None)
            self.user_ns["_exit_code"] = code

        def init_virtualenv(self):
            pass

    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.autoindent = False
    config.InteractiveShell.banner1 = ""
    try:
        shell = Shell.instance(config=config, user_module=module)
        for colors in ("NoColor", "nocolor"):
            try:
                shell.colors = colors
                break
            except Exception:
                continue
        shell.builtin_trap.activate()
        richer(shell.display_formatter)
        for name in ("exit", "quit", "_", "__", "___"):
            shell.user_ns.pop(name, None)
        return shell
    except Exception:
        return without_shell()


def richer(formatter):
    """Adds what IPython does not know of by itself, for its display() too."""
    original = formatter.format

    def format(value, include=None, exclude=None):
        if is_figure(value):
            return show_figure(value), {}
        data, metadata = original(value, include=include, exclude=exclude)
        if is_frame(value):
            add(data, FRAME_MIME, lambda: extra().frame_data(value))
        return data, metadata

    formatter.format = format


def without_shell():
    """A broken IPython must not take the interpreter with it."""
    traceback.print_exc()
    print("IPython does not start; the interpreter goes on without it", file=sys.stderr)
    return None


def hook_arguments():
    """Arguments of IPython's events, which the callbacks may look at."""
    from IPython.core.interactiveshell import ExecutionInfo, ExecutionResult
    import inspect

    def info():
        wanted = inspect.signature(ExecutionInfo).parameters
        return ExecutionInfo(**{name: {"raw_cell": "", "cell_id": None}.get(name, False) for name in wanted})

    return {"pre_run_cell": lambda: (info(),), "post_run_cell": lambda: (ExecutionResult(info()),)}


def start():
    global SOCKET, EXTRA, SHELL, NAMESPACE, FUTURES, DEFAULT_HOOKS, HOOK_ARGUMENTS, flush_libc, KEEP
    import __future__
    SOCKET = move_high(3)
    os.close(4)  # this script
    EXTRA = move_high(5)
    signal.signal(signal.SIGINT, on_interrupt)
    signal.signal(POKE, on_poke)
    signal.siginterrupt(POKE, False)
    os.register_at_fork(after_in_child=in_child)
    open_streams()
    flush_libc = find_libc_flush()
    FUTURES = 0
    for name in __future__.all_feature_names:
        FUTURES |= getattr(__future__, name).compiler_flag
    sys.argv[:] = [""]
    sys.path[0] = ""
    builtins.input = no_input
    builtins.display = display
    KEEP = sys.modules["__main__"]  # its namespace is this file's
    module = types.ModuleType("__main__")
    module.__builtins__ = builtins
    sys.modules["__main__"] = module
    os.environ.setdefault("MPLBACKEND", "Agg")
    sys.meta_path.insert(0, PyplotHook)
    SHELL = load_shell(module)
    builtins.exit, builtins.quit = Leave("exit"), Leave("quit")  # IPython hides them
    DEFAULT_HOOKS, HOOK_ARGUMENTS = [], {}
    if SHELL is not None:
        for hooks in SHELL.events.callbacks.values():
            DEFAULT_HOOKS.extend(hooks)
        HOOK_ARGUMENTS = hook_arguments()
    NAMESPACE = module.__dict__
    try:
        import faulthandler
        faulthandler.enable(file=2)
    except Exception:
        pass


def main():
    start()
    version = "%d.%d.%d" % sys.version_info[:3]
    try:
        State.start = os.getcwd()
    except OSError:
        pass  # it was deleted: nothing is moved
    send(encode({"op": "ready", "version": version, "ipython": SHELL is not None, "numbers": new_generators()}))
    while True:
        message = receive()
        if message["op"] == "run":
            call(message)
        else:
            housekeeping(message)


SOCKET, EXTRA = 3, 5
main()
