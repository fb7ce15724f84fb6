"""What the server would listen on, who could use it, and the versions of what it is built on."""

from __future__ import annotations

import argparse
import asyncio
import platform
import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version

from transom.commands.checks import Check
from transom.commands.server_options import settings_from
from transom.errors import ConfigError
from transom.server.api_keys import check_exposure, is_private
from transom.server.resume.select import make_store
from transom.server.resume.store import Reach, ResumeStore
from transom.server.run import bind, check_certificate
from transom.server.settings import ServerSettings

PACKAGE = "transom"


def check_serving(args: argparse.Namespace) -> Iterator[Check]:
    """Settings, port, certificate, exposure, resume store and versions."""
    try:
        settings = settings_from(args)
    except ConfigError as error:
        yield Check("settings", "fail", str(error), "correct the option, the environment or the file")
    else:
        yield _port(settings)
        yield _tls(settings)
        yield _exposure(settings, allow_insecure=args.allow_insecure)
        yield _resume(settings)
    yield from _versions()


def _port(settings: ServerSettings) -> Check:
    where = f"port {settings.port} on {settings.host}"
    try:
        bind(settings.host, settings.port).close()
    except ConfigError as error:
        return Check("port", "fail", str(error))
    return Check("port", "ok", f"{where} is free")


def _tls(settings: ServerSettings) -> Check:
    if settings.ssl_certfile is None and settings.ssl_keyfile is None:
        remedy = "openai for Node needs it: --ssl-certfile and --ssl-keyfile, or a proxy with TLS"
        return Check("tls", "off", "http and ws", remedy)
    try:
        check_certificate(settings)
    except ConfigError as error:
        return Check("tls", "fail", str(error))
    return Check("tls", "ok", f"https and wss with {settings.ssl_certfile}")


def _exposure(settings: ServerSettings, *, allow_insecure: bool) -> Check:
    keys, is_public = len(settings.api_keys), not is_private(settings.host)
    try:
        check_exposure(settings.host, settings.api_keys, allow_insecure)
    except ConfigError as error:
        return Check("access", "fail", str(error))
    if is_public and not keys:
        found = f"everybody who reaches {settings.host} may use the server: no API key"
        return Check("access", "warn", found, "give keys with TRANSOM_API_KEYS or --api-key-file")
    if is_public and settings.ssl_certfile is None:
        found = f"{keys} API keys, which travel unencrypted to {settings.host}"
        return Check("access", "warn", found, "use --ssl-certfile, or a proxy with TLS in front")
    return Check("access", "ok", f"{keys} API keys" if keys else f"only this machine reaches {settings.host}: no key")


def _resume(settings: ServerSettings) -> Check:
    try:
        store = make_store(settings.resume_s, settings.resume_store)
    except ConfigError as error:
        return Check("resume", "fail", str(error))
    match asyncio.run(_reach_of(store)):
        case "none":
            return Check("resume", "off", "lost sessions are not kept", "--resume-s keeps them")
        case "replica":
            return Check("resume", "off", "only this process can go on with its sessions", "replicas: --resume-store")
        case "shared":
            return Check("resume", "ok", f"all replicas can go on with sessions of {settings.resume_s:g} s ago")
        case "unavailable":
            found = "the shared store does not answer; the server would go on without it"
            return Check("resume", "warn", found, "start Redis, or correct --resume-store")


async def _reach_of(store: ResumeStore) -> Reach:
    await store.start()
    reach = store.reach
    await store.stop()
    return reach


def _versions() -> Iterator[Check]:
    """Python, and every package that is always needed."""
    versions = [f"python {platform.python_version()}", f"{PACKAGE} {version(PACKAGE)}"]
    for requirement in requires(PACKAGE) or ():
        if "extra ==" in requirement:
            continue
        name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
        try:
            versions.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            yield Check(name, "fail", f"not installed, but {requirement} is needed", f"pip install '{requirement}'")
    yield Check("versions", "ok", ", ".join(versions))
