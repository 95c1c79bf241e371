"""The dashboard's server, for `streamlit run app.py`. What it shows begins in pages/dashboard.py."""

from starlette.middleware import Middleware
from streamlit.starlette import App

from pages.widgets.shared.own_origin import OwnOrigin
from pages.widgets.shared.page_addresses import page_addresses

app = App("pages/dashboard.py", routes=page_addresses(), middleware=[Middleware(OwnOrigin)])
