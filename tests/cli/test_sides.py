"""Backends on the command line: their settings follow them."""

import pytest

from dsocr_core.base.errors import DsocrError
from dsocr_core.cli.main import parse
from dsocr_core.cli.options import take_sides


def test_settings_go_into_the_backend_before_them() -> None:
    words = (
        "compare --preset tiny page.png --a eager --a.dtype float32 --b=endpoint:http://h/v1 "
        "--b.flavour vllm --b.body.vllm_xargs.ngram_size=30 --b vendor --b fast --b.attention sdpa"
    )
    _, chosen = parse(words.split())
    assert (chosen.preset, chosen.a) == ("tiny", {"spec": "eager", "dtype": "float32"})
    served = {"spec": "endpoint:http://h/v1", "flavour": "vllm", "body.vllm_xargs.ngram_size": 30}
    assert chosen.b == [served, "vendor", {"spec": "fast", "attention": "sdpa"}]
    for others in (["trace", "p.png", "--a", "fast", "--b", "vendor"], ["compare", "--", "--a"]):
        assert take_sides(others) == (others, {})


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("compare p.png --b.dtype float32 --b eager", "--b.dtype comes before --b"),
        ("compare p.png --a", "--a: expected a value"),
        ("run p.png --backend.dtype float32", "comes before --backend"),
    ],
)
def test_settings_without_their_backend_are_refused(words: str, says: str) -> None:
    with pytest.raises(DsocrError, match=says):
        take_sides(words.split())
