"""What a browser makes of thousands of digits leaves a page as it is, or is refused by name."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, nan

import pytest
import streamlit as st
from streamlit.elements.widgets.number_input import NumberInputSerde
from streamlit.testing.v1 import AppTest

from dsocr_core.settings import PROJECT_ROOT
from pages.widgets.shared.number_fields import take_finite_numbers

ENDLESS = (inf, -inf, nan)
LARGE = (1e300, 0.0)


@pytest.fixture(autouse=True)
def patched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(NumberInputSerde, "deserialize", NumberInputSerde.deserialize)
    take_finite_numbers()
    take_finite_numbers()  # every visit asks for it
    yield
    st.cache_data.clear()


def fields() -> None:
    import streamlit as st

    st.number_input("whole", value=7, step=1)
    st.number_input("real", value=1.5)


@pytest.mark.parametrize("value", ENDLESS)
def test_an_endless_number_leaves_a_field_with_its_first_value(value: float) -> None:
    test = AppTest.from_function(fields).run()
    for field in test.number_input:
        field.set_value(value)
        test.run()
        assert not test.exception and field.key is None
    assert [field.value for field in test.number_input] == [7, 1.5]
    test.number_input[0].set_value(12)
    assert test.run().number_input[0].value == 12


def test_no_number_breaks_the_page_of_flops() -> None:
    view = "Requirements"
    test = flops(view)
    for number, field in enumerate(list(test.number_input)):
        for value in LARGE:
            if len(test.number_input) <= number or test.number_input[number].label != field.label:
                test = flops(view)  # a number that was refused leaves out what follows
            before = test.number_input[number].value
            test.number_input[number].set_value(value)
            test.run()
            assert not test.exception, f"{field.label} {value}: {test.exception[0].message}"
        test = flops(view) if len(test.number_input) <= number else test
        test.number_input[number].set_value(before)
        test.run()


def flops(view: str) -> AppTest:
    test = AppTest.from_file(str(PROJECT_ROOT / "pages" / "flops.py"), default_timeout=120)
    test.query_params["view"], test.query_params["hardware"] = view, "custom"
    test.query_params["work"] = "Sizes"
    return test.run()
