"""R: what a submission does while it runs: loops, memory, processes, output, exits, damage."""

from corpus import FULL, answer
from grading_course import CAUSAL

ALONE = "import os\nassert os.getpid() == 1  # only where there is a process namespace\n"
INSIDE = "def causal_mask(num_queries, num_keys=None, *, device=None):\n    "

# Time.
answer(
    "R01",
    "an endless loop in the answer",
    INSIDE + "while True: pass",
    outcome="timed_out",
    words="did not end within 2 s",
)
answer("R01", "an endless loop at module level", "while True: pass", outcome="timed_out")
answer(
    "R02",
    "a loop that swallows interrupts",
    """while True:
    try:
        while True: pass
    except BaseException: pass""",
    outcome="timed_out",
)
answer(
    "R03",
    "a loop behind ignored signals",
    """import signal
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
    signal.signal(number, signal.SIG_IGN)
while True: pass""",
    outcome="timed_out",
)
answer("R04", "sleeps for years", "import time\n" + INSIDE + "time.sleep(1e9)", outcome="timed_out")
answer(
    "R04",
    "waits for its own lock",
    """import threading
lock = threading.Lock()
lock.acquire()
lock.acquire()""",
    outcome="timed_out",
)
answer(
    "R05",
    "every call takes a second",
    f"import time\n{CAUSAL.replace('    m =', '    time.sleep(1)' + chr(10) + '    m =', 1)}",
    outcome="timed_out incorrect raised",
)
answer(
    "R31",
    "clocks replaced, and sleep in finally and at exit",
    """import atexit, time
time.time = time.monotonic = time.perf_counter = lambda: 0.0
atexit.register(lambda: time.sleep(1e6))
def causal_mask(num_queries, num_keys=None, *, device=None):
    while True:
        try:
            time.sleep(1e6)
        finally:
            time.sleep(1e6)""",
    outcome="timed_out",
)

# Memory, processes, disk.
answer("R06", "recursion without end", INSIDE + "return causal_mask(num_queries)", outcome="raised")
answer(
    "R06",
    "recursion without end or limit",
    """import sys
def deep(x): return deep(x) + 1
sys.setrecursionlimit(10**9)
deep(1)""",
    outcome="crashed out_of_memory timed_out",
)
answer(
    "R07",
    "a list that takes all memory",
    ALONE
    + INSIDE
    + """x = []
    while True: x.append(bytearray(10**7))""",
    outcome="out_of_memory raised timed_out",
)
answer("R08", "a tensor of terabytes", INSIDE + "return torch.ones(10**12)", outcome="raised")
answer(
    "R08",
    "tensors until it ends",
    ALONE
    + """kept = []
while True: kept.append(torch.ones(20_000_000))""",
    outcome="out_of_memory not_attempted",
)
answer(
    "R09",
    "memory in many processes",
    ALONE
    + """for _ in range(8):
    if os.fork() == 0:
        x = b"x" * 300_000_000
        os.execv("/bin/sleep", ["sleep", "3600"]) if False else __import__("time").sleep(3600)
__import__("time").sleep(3600)""",
    outcome="out_of_memory timed_out",
)
answer(
    "R10",
    "memory that is not counted as a process's",
    ALONE
    + f"""done = []
for folder in ("/dev/shm", "/tmp", "/scratch"):
    try:
        for i in range(9999):
            open(f"{{folder}}/{{i}}", "wb").write(bytes(10_000_000))
    except OSError as error:
        done.append(error.errno)
for name in ("memfd_create",):
    try:
        os.memfd_create("x")
        done.append("memfd")
    except OSError:
        pass
print("stopped by", done)
{CAUSAL}""",
    points=FULL,
    shows="stopped by [28, 28, 28]",
)
answer(
    "R11",
    "a fork bomb",
    ALONE
    + """while True:
    try:
        os.fork()
    except OSError:
        pass""",
    outcome="crashed timed_out",
)
answer(
    "R12",
    "threads without end",
    """import threading, time
def more():
    while True:
        threading.Thread(target=time.sleep, args=[1e6], daemon=True).start()
more()""",
    outcome="not_attempted crashed timed_out",
)
answer(
    "R12",
    "thousands of threads for torch",
    f"torch.set_num_threads(4096)\ntorch.ones(400, 400) @ torch.ones(400, 400)\n{CAUSAL}",
    points=None,
)
answer(
    "R18",
    "fills every folder",
    ALONE
    + f"""done = 0
for folder in ("/scratch", "/tmp", "/ipc", "/dev/shm", "."):
    for size, count in ((10**10, 1), (10**6, 40), (1, 2100)):
        try:
            for i in range(count):
                with open(f"{{folder}}/{{size}}-{{i}}", "wb") as file:
                    file.truncate(size) if size > 10**9 else file.write(bytes(size))
        except OSError:
            done += 1
print("stopped", done > 5)
{CAUSAL}""",
    points=FULL,
    shows="stopped True",
)

# Output.
answer(
    "R13",
    "prints without end",
    "while True: print('x' * 100_000)",
    outcome="not_attempted timed_out crashed",
)
answer(
    "R13",
    "prints without end and swallows errors",
    """while True:
    try: print("x" * 100_000)
    except BaseException: pass""",
    outcome="timed_out not_attempted",
)
answer(
    "R14",
    "displays without end",
    """from IPython.display import HTML, display
while True: display(HTML("x" * 1_000_000))""",
    outcome="timed_out",
    words="printed more than 1 MB",
)
answer(
    "R14",
    "figures without end",
    """import matplotlib.pyplot as plt
from IPython.display import display
while True:
    figure = plt.figure(figsize=(9, 9))
    display(figure)
    plt.close(figure)""",
    outcome="timed_out",
)
answer(
    "R15",
    "writes to file descriptors",
    f"""import os, sys
for _ in range(2000):
    os.write(1, b"x" * 1_000_000)
    os.write(2, b"x" * 1_000_000)
{CAUSAL}""",
    points=FULL,
)
answer(
    "R15",
    "floods stderr",
    "import sys\nwhile True: sys.stderr.write('x' * 100_000)",
    outcome="not_attempted timed_out",
)
answer(
    "R16",
    "a repr of hundreds of megabytes",
    f"""class Long:
    def __repr__(self): return "x" * 200_000_000
{CAUSAL}
Long()""",
    points=FULL,
)
answer(
    "R16",
    "an error message of a hundred megabytes",
    INSIDE + "raise ValueError('x' * 100_000_000)",
    outcome="raised",
)
answer(
    "R16",
    "a traceback of many frames",
    """import sys
sys.setrecursionlimit(20_000)
def deep(n): return deep(n - 1) if n else 1 / 0
def causal_mask(num_queries, num_keys=None, *, device=None): return deep(15_000)""",
    outcome="raised crashed incorrect",
)
INJECT = """from IPython.display import HTML, Javascript, SVG, Markdown, display
TEXT = "<script>ALIVE()</script></pre></div><img src=x onerror=ALIVE()>"
TEXT += "\\x1b[2J\\x1b]0;ALIVE\\x07\\x00\\u202e"
print(TEXT)
display(HTML(TEXT), Javascript("ALIVE()"), Markdown(TEXT))
display({"image/svg+xml": f"<svg onload='ALIVE()'>{TEXT}</svg>", "text/latex": TEXT,
         "text/markdown": TEXT, "application/javascript": "ALIVE()"}, raw=True)
display({"image/png": 'x" onerror="ALIVE()', "text/plain": TEXT}, raw=True)
display({"image/png": "AAAA", "text/plain": TEXT}, raw=True, metadata={"image/png": {
    "width": "1 onload=ALIVE()", "alt": '"><script>ALIVE()</script>'}})
"""
answer(
    "R17",
    "markup, scripts and control characters in outputs",
    INJECT + INSIDE + "raise ValueError(TEXT)",
    outcome="raised",
)
answer(
    "R17",
    "markup in names that reports repeat",
    """Evil = type("<script>ALIVE()</script>", (), {})
class Odd(Exception): pass
Odd.__name__ = Odd.__qualname__ = "<img src=x onerror=ALIVE()>"
def causal_mask(num_queries, num_keys=None, *, device=None):
    return Evil()""",
    second="""class Odd(Exception): pass
Odd.__name__ = Odd.__qualname__ = "<img src=x onerror=ALIVE()>"
def length_mask(valid_lens, max_len): raise Odd("<script>ALIVE()</script>")""",
    points=(0.0, 0.0),
)

# Ends.
for what, code in {
    "input()": "input('x')",
    "getpass": "__import__('getpass').getpass()",
    "breakpoint()": "breakpoint()",
}.items():
    answer("R19", f"asks: {what}", INSIDE + code, outcome="raised timed_out incorrect")
answer("R19", "asks at module level", f"name = input()\n{CAUSAL}", outcome="raised")
for what, code in {
    "exit()": "exit()",
    "sys.exit(0)": "__import__('sys').exit(0)",
    "SystemExit": "raise SystemExit",
    "os._exit": "__import__('os')._exit(0)",
    "os.abort": "__import__('os').abort()",
}.items():
    answer("R20", f"{what} inside", INSIDE + code, outcome="raised crashed incorrect")
    if what != "exit()":  # which ends the kernel after the cell, and only if that is IPython's
        answer(
            "R20", f"{what} above it", f"{code}\n{CAUSAL}", outcome="crashed raised not_attempted"
        )
answer(
    "R20",
    "exits while the check looks on, right otherwise",
    """import os, sys
def causal_mask(num_queries, num_keys=None, *, device=None):
    os._exit(0)""",
    outcome="crashed",
    words="ended the kernel",
)
answer("R21", "reads address 0", "import ctypes\nctypes.string_at(0)", outcome="crashed")
answer(
    "R21",
    "reads address 0 inside",
    "import ctypes\n" + INSIDE + "ctypes.string_at(0)",
    outcome="crashed",
)
answer(
    "R22",
    "stops itself",
    ALONE
    + f"""import signal
os.kill(os.getpid(), signal.SIGSTOP)
{CAUSAL}""",
    points=FULL,
)
answer(
    "R23",
    "stops or kills all processes",
    ALONE
    + f"""import signal
for number in (signal.SIGSTOP, signal.SIGKILL):
    for pid in (-1, 1, 2, 3):
        try:
            os.kill(pid, number)
        except OSError:
            pass
print("pids", sorted(name for name in os.listdir("/proc") if name.isdigit()))
{CAUSAL}""",
    points=FULL,
    shows="pids ['1'",
)
answer(
    "R24",
    "kills its parent and all it sees",
    ALONE
    + f"""for pid in (os.getppid(), *range(2, 3000)):
    try:
        os.kill(pid, 9) if pid > 1 else None
    except OSError:
        pass
print("parent", os.getppid())
{CAUSAL}""",
    points=FULL,
    shows="parent 0",
)
answer(
    "R25",
    "leaves a daemon that ignores signals",
    ALONE
    + f"""import signal, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for number in range(1, 32):
            try: signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError): pass
        end = time.monotonic() + 3600
        while time.monotonic() < end:
            time.sleep(0.1)
            try: open("@TARGET@", "w").write("changed")
            except OSError: pass
    os._exit(0)
{CAUSAL}""",
    points=FULL,
)
answer(
    "R26",
    "leaves a process that holds its pipes",
    f"""import subprocess
subprocess.Popen(["sleep", "3600"], start_new_session=True)
{CAUSAL}""",
    points=FULL,
)

# Honest oddities and damage for those who come after.
answer(
    "R27",
    "wrong in the first look, right in the second",
    f"""calls = 0
{CAUSAL.replace("causal_mask", "right")}
def causal_mask(num_queries, num_keys=None, *, device=None):
    global calls
    calls += 1
    mask = right(num_queries, num_keys, device=device)
    return ~mask if calls == 1 else mask""",
    points=None,
    words="wrong with one set of inputs",
)
answer(
    "R28",
    "warns, logs and shows progress on stderr",
    f"""import logging, sys, warnings
warnings.warn("careful")
logging.warning("careful")
print("10%|#         |\\r20%|##        |", file=sys.stderr)
{CAUSAL}
warnings.warn("again")""",
    points=FULL,
)
answer(
    "R29",
    "changes what everyone shares",
    f"""import gc, locale, os, sys, warnings
import numpy as np
torch.set_default_dtype(torch.float64)
torch.set_default_device("meta")
torch.set_grad_enabled(False)
np.seterr(all="raise")
os.chdir("/")
gc.disable()
sys.stdout = sys.stderr = None
warnings.simplefilter("error")
sys.path.clear()
{CAUSAL}""",
    points=FULL,
)
answer("R29", "deletes torch", f"{CAUSAL}\ndel torch", points=FULL)
answer(
    "R30",
    "worker pools",
    f"""import multiprocessing
torch.set_num_threads(8)
(torch.ones(300, 300, requires_grad=True) @ torch.ones(300, 300)).sum().backward()
with multiprocessing.get_context("fork").Pool(2) as pool:
    print("pool", pool.map(abs, [-1, -2]))
loader = torch.utils.data.DataLoader(list(range(8)), num_workers=2)
print("loaded", len(list(loader)))
{CAUSAL}""",
    points=FULL,
)
