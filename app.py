"""The dashboard's server, for `streamlit run app.py`. What it shows begins in pages/dashboard.py."""

import sys
from pathlib import Path

from starlette.middleware import Middleware
from streamlit.starlette import App

from dsocr_core.base.system import require_posix

require_posix()

from pages.widgets.shared.messages import show_script_error  # noqa: E402
from pages.widgets.streamlit_client import ClientFiles, page_addresses  # noqa: E402
from pages.widgets.streamlit_mends import OwnOrigin, send_at_once  # noqa: E402

SCRIPT = Path(__file__).resolve().parent / "pages" / "dashboard.py"
# Streamlit puts a script's folder at the head of sys.path for each run and takes it out again, unless it is
# there. As the list moves, an import in another thread passes over an entry: "No module named 'torch'".
sys.path.append(str(SCRIPT.parent))
send_at_once()
app = App(
    SCRIPT,
    routes=page_addresses(),
    middleware=[Middleware(OwnOrigin), Middleware(ClientFiles)],
    on_script_error=show_script_error,
)
