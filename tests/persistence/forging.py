"""Model folders as a forger would make them: changed, with checksums that match again."""

import io
import json
import zipfile

from demur.deploy.manifest import checksum, parse, render


def forge_manifest(folder, change):
    """Apply a change to the document of ``model.json`` and make its checksum right."""
    document = parse((folder / "model.json").read_bytes(), str(folder))
    del document["sha256"]
    change(document)
    (folder / "model.json").write_bytes(render(document))


def forge_file(folder, name, content):
    """Replace a file and make the checksums right."""
    (folder / name).write_bytes(content)
    forge_manifest(folder, lambda document: document["files"].update({name: checksum(content)}))


def forge_skops(folder, change=lambda schema: None, files=()):
    """Apply a change to the schema of ``sklearn.skops``, replace members of it, and make all checksums right."""
    written = io.BytesIO()
    with zipfile.ZipFile(folder / "sklearn.skops") as old, zipfile.ZipFile(written, "w") as new:
        contents = {name: old.read(name) for name in old.namelist()}
        schema = json.loads(contents["schema.json"])
        change(schema)
        contents.update({"schema.json": json.dumps(schema).encode(), **dict(files)})
        for name, content in contents.items():
            new.writestr(name, content)
    forge_file(folder, "sklearn.skops", written.getvalue())
