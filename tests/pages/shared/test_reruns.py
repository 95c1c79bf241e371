"""A button of a fragment that reruns it: pressed, the page comes to its end whichever run the click is in."""

from streamlit.testing.v1 import AppTest


def app() -> None:
    import streamlit as st

    from pages.widgets.shared.reruns import rerun_fragment

    @st.fragment
    def part() -> None:
        if st.button("press", key="press"):
            st.session_state["pressed"] = st.session_state.get("pressed", 0) + 1
            rerun_fragment()

    part()
    st.write("the end")


def test_a_click_in_a_run_of_the_whole_page_runs_the_page_again() -> None:
    test = AppTest.from_function(app).run()
    test.button(key="press").click().run()  # a test has no fragment runs
    assert not test.exception
    assert test.session_state["pressed"] == 1 and test.markdown[0].value == "the end"
