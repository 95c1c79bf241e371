"""Code of a checkpoint: only the directory's own files run, and only as they were when they were allowed."""

import json
from pathlib import Path
from types import ModuleType

import pytest

from dsocr_core.base.paths import EMBEDDED_CHECKPOINT
from dsocr_core.vendor.errors import RemoteCodeNotAllowed
from dsocr_core.vendor.remote_code import check_modules, copy_for_import, remote_code, require_allowed


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A checkpoint with code in two files."""
    made = tmp_path / "checkpoint"
    made.mkdir()
    (made / "modeling.py").write_text("class Model: ...\n", encoding="utf-8")
    (made / "parts.py").touch()
    (made / "weights.safetensors").touch()
    configure(made, {"auto_map": {"AutoModel": "modeling.Model"}})
    return made


def configure(directory: Path, config: object, name: str = "config.json") -> None:
    (directory / name).write_text(json.dumps(config), encoding="utf-8")


REFERENCES = (
    "/elsewhere--module.X", "someone/repository--modeling.Model", "../modeling.Model", "a/b.Model",
    "modeling", "os.path.join", "modeling.Model--", ".Model", "modeling.", "mod\x00ule.X",
    "mödeling.Model", 7, {"deep": "modeling.Model"}, ["modeling.Model", "x--y.Z"],
)  # fmt: skip


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json", "config.4.0.0.json"])
def test_an_auto_map_that_leads_elsewhere_is_refused(directory: Path, name: str) -> None:
    for reference in REFERENCES:
        for config in (
            {"auto_map": {"AutoModel": reference}},
            {"a": [{"auto_map": {"AutoModel": reference}}]},
        ):
            configure(directory, config, name)
            with pytest.raises(
                RemoteCodeNotAllowed, match=rf"{name}: auto_map names '.*not a class of the dir"
            ):
                remote_code(directory)
    for own in ("modeling.Model", ["modeling.Model", None]):
        configure(directory, {"auto_map": {"AutoTokenizer": own}}, name)
        assert set(remote_code(directory).files) >= {"modeling.py", name}
    assert "modeling_deepseekocr.py" in remote_code(EMBEDDED_CHECKPOINT).files


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", '{"configuration_files": ["config.4.0.0.json"]}'),
        ("adapter_config.json", '{"base_model_name_or_path": "/elsewhere"}'),
        ("ADAPTER_CONFIG.JSON", "{}"),
        ("config.json", '{"text_config": {"_attn_implementation_internal": "someone/kernel"}}'),
        ("config.json", '{"custom_pipelines": {"x": {"impl": "a.B"}}}'),
        ("config.json", "[" * 10_000),
        ("config.json", "link to itself"),
        ("folder.py", "folder"),
        ("extra.py", "link out"),
        ("config.json", "link out"),
    ],
)
def test_what_names_other_files_or_is_none_is_refused(
    directory: Path, tmp_path: Path, name: str, content: str
) -> None:
    file = directory / name
    file.unlink(missing_ok=True)
    if content == "folder":
        file.mkdir()
    elif content.startswith("link"):
        (tmp_path / "elsewhere").write_text("{}", encoding="utf-8")
        file.symlink_to(tmp_path / "elsewhere" if content == "link out" else name)
    else:
        file.write_text(content, encoding="utf-8")
    words = rf"(?i){name}.*(names another|its code is not run|is a link out of the directory)"
    with pytest.raises(RemoteCodeNotAllowed, match=words):
        remote_code(directory)


@pytest.mark.parametrize("layout", ["relative links", "absolute links", "copies", "a link to the snapshot"])
def test_a_snapshot_of_a_cache_is_taken_with_its_links(directory: Path, tmp_path: Path, layout: str) -> None:
    """The layouts that `hf download` and `from_pretrained` leave."""
    cache = tmp_path / "models--someone--name"
    (cache / "blobs").mkdir(parents=True)
    snapshot = cache / "snapshots" / "0123abcd"
    snapshot.mkdir(parents=True)
    for file in directory.iterdir():
        blob = file.rename(cache / "blobs" / f"of-{file.name}")
        if layout == "copies":
            (snapshot / file.name).write_bytes(blob.read_bytes())
        else:
            absolute = layout == "absolute links"
            (snapshot / file.name).symlink_to(blob if absolute else f"../../blobs/{blob.name}")
    if layout == "a link to the snapshot":
        (tmp_path / "main").symlink_to(snapshot)
        snapshot = tmp_path / "main"
    code = remote_code(snapshot)
    assert set(code.files) == {"modeling.py", "parts.py", "config.json"}
    copy_for_import(snapshot, code.files, tmp_path / "copy")
    assert not (tmp_path / "copy" / "modeling.py").is_symlink()
    (tmp_path / "elsewhere.py").touch()
    (snapshot / "extra.py").symlink_to(tmp_path / "elsewhere.py")
    with pytest.raises(RemoteCodeNotAllowed, match=r"extra\.py is a link out of the directory"):
        remote_code(snapshot)


def test_a_module_that_is_no_copy_of_the_hashed_files_is_refused(directory: Path, tmp_path: Path) -> None:
    files = remote_code(directory).files
    module = ModuleType("transformers_modules.elsewhere.modeling")
    module.__file__ = str(directory / "modeling.py")
    check_modules([module], files)
    (tmp_path / "modeling.py").write_text("class Model: ...\nchanged = 1\n", encoding="utf-8")
    module.__file__ = str(tmp_path / "modeling.py")
    with pytest.raises(RemoteCodeNotAllowed, match="was imported from elsewhere"):
        check_modules([module], files)


def test_a_directory_is_allowed_by_name_or_by_the_digest_of_its_code(directory: Path, tmp_path: Path) -> None:
    code = remote_code(directory)
    other = code.permission.replace(code.digest, "0" * 16)
    for allowed in ((), (tmp_path,), (str(directory) + "x",), (other,), (f"{tmp_path}@{code.digest}",)):
        with pytest.raises(RemoteCodeNotAllowed, match="read it, then give") as error:
            require_allowed(directory, allowed, None)
        assert code.permission in str(error.value) and code.files["modeling.py"][:8] in str(error.value)
    for entry in (directory, str(directory), directory / ".." / "checkpoint", code.permission):
        assert require_allowed(directory, (entry,), None) == code


def test_changed_code_asks_again(directory: Path, tmp_path: Path) -> None:
    record = tmp_path / "runs" / "allowed.json"
    before = require_allowed(directory, (directory,), record)
    assert json.loads(record.read_text(encoding="utf-8")) == {str(directory): before.files}
    for change in ("parts.py", "new.py", "tokenizer.json"):
        (directory / change).write_text(f"changed = {change!r}\n", encoding="utf-8")
        with pytest.raises(
            RemoteCodeNotAllowed, match=rf"has changed since it was allowed \({change} "
        ) as error:
            require_allowed(directory, (directory,), record)
        now = remote_code(directory)
        assert now.permission in str(error.value) and now.digest != before.digest
        with pytest.raises(RemoteCodeNotAllowed, match="has changed"):
            require_allowed(directory, (before.permission,), record)
        require_allowed(directory, (now.permission,), record)
        require_allowed(directory, (directory,), record)
    (directory / "new.py").unlink()
    with pytest.raises(RemoteCodeNotAllowed, match=r"new\.py gone"):
        require_allowed(directory, (directory,), record)


def test_a_damaged_record_is_not_taken_for_none(directory: Path, tmp_path: Path) -> None:
    (tmp_path / "allowed.json").write_text("{", encoding="utf-8")
    with pytest.raises(RemoteCodeNotAllowed, match=r"allowed\.json: not valid JSON"):
        require_allowed(directory, (directory,), tmp_path / "allowed.json")


def test_what_is_imported_is_what_was_hashed(directory: Path, tmp_path: Path) -> None:
    code = remote_code(directory)
    (directory / "later.py").touch()
    copy_for_import(directory, code.files, tmp_path / "copy")
    copied = {entry.name: entry.is_symlink() for entry in (tmp_path / "copy").iterdir()}
    own = dict.fromkeys(("modeling.py", "parts.py", "config.json"), False)
    assert copied == own | {"weights.safetensors": True}
    (directory / "modeling.py").write_text("changed = 1\n", encoding="utf-8")
    with pytest.raises(RemoteCodeNotAllowed, match=r"modeling\.py has changed while it was loaded"):
        copy_for_import(directory, code.files, tmp_path / "again")
