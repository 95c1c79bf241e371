"""Streamlit's client as the app serves it: pages by their addresses, files out of memory and ahead of use."""

import json
import re

from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient
from streamlit.web.server.starlette.starlette_routes import create_host_config_routes
from streamlit.web.server.starlette.starlette_static_routes import create_streamlit_static_assets_routes

from pages.widgets.streamlit_client import STYLE, ClientFiles, page_addresses

PAGES = TestClient(Starlette(routes=[*page_addresses(), *create_host_config_routes(None)]))
STREAMLITS = TestClient(Starlette(routes=create_streamlit_static_assets_routes(None)))


def test_a_page_says_where_the_server_is_and_the_first_one_is_found_by_its_name() -> None:
    html, told = PAGES.get("/review").text, PAGES.get("/_stcore/host-config").json()
    # Before the client's own scripts, which read it when they are loaded; after the client's own styles.
    assert html.index("window.__streamlit = {BACKEND_BASE_URL") < html.index('<script type="module"')
    assert html.index("</head>") < html.index(STYLE.read_text("utf-8")) < html.index('id="root"')
    [known] = re.findall(r"HOST_CONFIG: (\{.*?\})\}</script>", html)
    assert told["allowedOrigins"] and told | json.loads(known) == told
    for query in ("", "?page=01-letter&text=caf%C3%A9"):
        answer = PAGES.get(f"/compare{query}", follow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (307, f"./{query}")


def test_files_that_a_page_draws_with_are_linked_with_their_imports_and_served_as_by_streamlit() -> None:
    ours = TestClient(ClientFiles(PlainTextResponse("passed on")))
    linked = re.findall(r'href="\.(/static/[^"]+)"', PAGES.get("/timing").text)
    assert "/DataFrame." in "".join(linked) and "/DataFrame." not in PAGES.get("/").text
    for address in linked:
        answer, known = ours.get(address), STREAMLITS.get(address)
        assert (answer.status_code, answer.content) == (200, known.content)
        assert known.headers.items() >= {(name, answer.headers[name]) for name in answer.headers}
        imported = re.findall(r"""import[^;(]*?["'`]\./([\w.-]+)["'`]""", answer.text)
        assert {f"/static/js/{name}" for name in imported} <= {*linked} or not address.endswith(".js")
    for path in ("/static/js/none.js", "/static/js", "/static/js/../../index.html", "/"):
        assert ours.get(path).text == "passed on"
