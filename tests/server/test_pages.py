"""The captions page over HTTP: what is sent with it, and that all its parts are there."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from transom.server.pages import make_router, read_pages


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    app = FastAPI()
    app.include_router(make_router())
    with TestClient(app) as client:
        yield client


@pytest.mark.parametrize("path", ["/", "/static/app.js"])
def test_nothing_but_the_servers_own_files_may_run(client: TestClient, path: str) -> None:
    headers = client.get(path).headers
    policy = dict(rule.split(" ", 1) for rule in headers["content-security-policy"].split("; "))
    assert policy.pop("default-src") == "'none'"
    assert set(policy.values()) == {"'self'", "'none'"}
    assert policy["frame-ancestors"] == "'none'"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert "microphone=(self)" in headers["permissions-policy"]


def test_the_page_holds_no_inline_script_or_style_and_asks_no_other_host() -> None:
    pages = read_pages()
    html = pages["index.html"].body.decode()
    assert re.findall(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", html) == []
    for name, page in pages.items():
        hosts = re.findall(r"(?:https?:)?//[a-z0-9.-]+\.[a-z]{2,}", page.body.decode())
        assert [host for host in hosts if host != "http://www.w3.org"] == [], name


def test_every_file_that_the_page_names_is_there_and_none_is_left_over(client: TestClient) -> None:
    pages = read_pages()
    text = "\n".join(page.body.decode() for page in pages.values())
    named = set(re.findall(r'"(?:static/|\./|)([\w-]+\.(?:js|css|svg))"', text))
    assert named == set(pages) - {"index.html"}
    for name in named:
        answer = client.get(f"/static/{name}")
        assert (answer.status_code, answer.headers["content-type"]) == (200, pages[name].media_type)


def test_every_element_that_the_scripts_ask_for_is_on_the_page() -> None:
    pages = read_pages()
    asked = set(re.findall(r'\$\("([\w-]+)"\)', pages["app.js"].body.decode()))
    assert len(asked) > 20
    assert asked - set(re.findall(r'\sid="([\w-]+)"', pages["index.html"].body.decode())) == set()


def test_a_browser_asks_each_time_and_is_told_that_nothing_changed(client: TestClient) -> None:
    first = client.get("/")
    assert first.headers["cache-control"] == "no-cache"
    again = client.get("/", headers={"If-None-Match": f'"other", W/{first.headers["etag"]}'})
    assert (again.status_code, again.content) == (304, b"")
    assert client.get("/", headers={"If-None-Match": '"other"'}).status_code == 200
    assert client.head("/").headers["etag"] == first.headers["etag"]


@pytest.mark.parametrize("name", ["..%2fpages.py", "nothing.js", "%2e%2e/pages.py", ""])
def test_other_paths_are_not_found(client: TestClient, name: str) -> None:
    assert client.get(f"/static/{name}").status_code == 404
