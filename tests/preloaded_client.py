"""Has the server at a socket run ``python ARGUMENTS``, and ends as that ended: see preloaded.py.

python -I -S preloaded_client.py SOCKET ARGUMENTS...
"""

import json
import os
import signal
import socket
import struct
import sys

with socket.socket(socket.AF_UNIX) as connection:
    request = {"arguments": sys.argv[2:], "folder": os.getcwd(), "environment": dict(os.environ)}
    text = json.dumps(request).encode()
    connection.connect(sys.argv[1])
    socket.send_fds(connection, [struct.pack("=I", len(text))], [0, 1, 2])
    connection.sendall(text)
    (status,) = struct.unpack("=i", connection.recv(4, socket.MSG_WAITALL))
if status < 0:
    if -status != signal.SIGKILL:
        signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
os._exit(status)
