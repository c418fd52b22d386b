"""A site on a leash ends with who holds it, and can end by itself while it is held."""

import subprocess
import sys

from waiting import PATIENCE_S


def run(program, **given):
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S, **given)


def test_a_process_that_ends_while_it_is_held_does_not_break():
    holder = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        done = run("import time; from headwater.cli.site import _leash; _leash(); time.sleep(0.2)", stdin=holder.stdout)
        assert (done.returncode, done.stderr) == (0, "")
    finally:
        holder.kill()
        holder.communicate()


def test_a_process_hears_that_nobody_holds_it_any_more():
    done = run("from headwater.cli.site import _leash; assert _leash().wait(60)", stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stderr) == (0, "")
