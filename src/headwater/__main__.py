"""The command `headwater`, and `python -m headwater`: the command line."""

import signal


def main() -> None:
    """Load the command line and run it; until that is loaded, Ctrl-C ends it as it ends any program, without a traceback."""
    usual = signal.getsignal(signal.SIGINT)
    if usual is not signal.SIG_IGN:  # as a shell has it for what runs in the background
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from headwater.cli import main as run

    signal.signal(signal.SIGINT, usual)
    run()


if __name__ == "__main__":
    main()
