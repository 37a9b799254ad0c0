"""Properties are read as Java reads them, and written so that they are read back."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.contexts import properties_text, read_properties
from penstock.client.properties import parse_properties


@given(
    st.dictionaries(
        st.text("ab.=:# !\\\t\n\r\fü", min_size=1),
        st.text("ab =:#!\\\t\n\r\fü").map(lambda text: text.rstrip()),
        max_size=5,
    )
)
def test_what_was_written_is_read_back(properties: dict[str, str]) -> None:
    assert dict(parse_properties(properties_text(properties))) == properties


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"cannot read .*absent: No such file"):
        read_properties(tmp_path / "absent")
    (tmp_path / "image").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="is not a text in UTF-8"):
        read_properties(tmp_path / "image")
