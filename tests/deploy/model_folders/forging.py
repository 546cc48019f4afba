"""Model folders as a forger would make them: changed, with checksums that match again."""

import hashlib
import io
import json
import zipfile


def forge_manifest(folder, change):
    """Apply a change to the document of ``model.json``."""
    document = json.loads((folder / "model.json").read_bytes())
    change(document)
    (folder / "model.json").write_text(json.dumps(document))


def forge_archive(folder, content):
    """Replace ``model.skops`` and make the checksums right."""
    (folder / "model.skops").write_bytes(content)
    facts = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
    forge_manifest(folder, lambda document: document["files"].update({"model.skops": facts}))


def forge_schema(folder, change=lambda schema: None, files=()):
    """Apply a change to the description of the model, replace members of its archive, and make all checksums right."""
    written = io.BytesIO()
    with zipfile.ZipFile(folder / "model.skops") as old, zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as new:
        contents = {name: old.read(name) for name in old.namelist()}
        schema = json.loads(contents["schema.json"])
        change(schema)
        contents.update({"schema.json": json.dumps(schema).encode(), **dict(files)})
        for name, content in contents.items():
            new.writestr(name, content)
    forge_archive(folder, written.getvalue())


def attributes(node):
    """Return the attributes of an object as its description holds them, by name."""
    return node["content"]["content"]


def plain(value):
    """Return the description of a plain value."""
    text = json.dumps(value)
    return {"__class__": "str", "__module__": "builtins", "__loader__": "JsonNode", "content": text, "is_json": True}
