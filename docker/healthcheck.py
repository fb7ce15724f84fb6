"""Exit code 0 while the server in this container takes new clients: asks its /readyz. Python's own modules only.

Knows the port and whether TLS is on from the environment (TRANSOM_PORT, TRANSOM_SSL_CERTFILE). A server that gets
them as options or from a file needs a health check of its own.
"""

import os
import ssl
import sys
import urllib.request

TIMEOUT_S = 2

port = os.environ.get("TRANSOM_PORT", "8000")
scheme = "https" if os.environ.get("TRANSOM_SSL_CERTFILE") else "http"
# The certificate is for the name that clients use, not for this address.
context = ssl._create_unverified_context()
# No proxy that the environment names for other addresses.
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
try:
    opener.open(f"{scheme}://127.0.0.1:{port}/readyz", timeout=TIMEOUT_S)
except OSError as error:
    sys.exit(f"not ready: {error}")
