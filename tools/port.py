"""Exits with a message unless the port given as argument is free on this computer."""

import socket
import sys


def problem(text: str) -> str | None:
    """A message on what is wrong with a port, and what to do; None if it can be used."""
    if not text.isdecimal() or not 0 < int(text) < 65536:
        return (
            f"PORT={text} is no port; choose a number from 1 to 65535, "
            "for example: make app PORT=8501"
        )
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", int(text)))
        except PermissionError:
            return f"port {text} is kept for the system; choose one above 1023: make app PORT=8501"
        except OSError:
            other_port = 8501 if int(text) != 8501 else 8502
            return (
                f"port {text} is in use; stop the program that uses it, "
                f"or choose another: make app PORT={other_port}"
            )
    return None


if __name__ == "__main__":
    port_problem = problem(sys.argv[1])
    sys.exit(f"headlab: {port_problem}" if port_problem else 0)
