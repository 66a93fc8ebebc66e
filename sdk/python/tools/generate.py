"""Generates what of the package comes from api/openapi.yaml.

    python tools/generate.py          writes src/ramet/_generated and src/ramet/_sync
    python tools/generate.py --check  says whether they are current, and changes nothing

_generated/models.py is written by datamodel-code-generator, which tools/requirements.txt pins.
_generated/operations.py, one function for each operation, is written here.
_sync is _async without its awaits, see unasync.py.
"""

from __future__ import annotations

import argparse
import copy
import keyword
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

import unasync

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parent / "src" / "ramet"
SPEC = HERE.parents[2] / "api" / "openapi.yaml"

# Schemas whose names would be those of other things in a Python program.
RENAMED = {
    "Sandbox": "SandboxInfo",
    "Error": "ErrorBody",
    "Event": "RunEvent",
    "Process": "ProcessInfo",
    "FileChange": "FileEvent",
}

PYTHON_TYPES = {"string": "str", "integer": "int", "boolean": "bool", "number": "float"}


def flatten(schemas: dict[str, Any]) -> None:
    """Replaces each allOf by the object that it describes: dataclasses of Python 3.9 cannot
    have a field without a default behind an inherited one that has one."""

    def resolve(schema: dict[str, Any]) -> dict[str, Any]:
        if "$ref" in schema:
            return resolve(schemas[schema["$ref"].rsplit("/", 1)[1]])
        if "allOf" not in schema:
            return schema
        out: dict[str, Any] = {"type": "object", "required": [], "properties": {}}
        for part in map(resolve, schema["allOf"]):
            out["required"] += part.get("required", [])
            out["properties"].update(copy.deepcopy(part["properties"]))
        if "description" in schema:
            out["description"] = schema["description"]
        return out

    for name in schemas:
        schemas[name] = resolve(schemas[name])


def rename(node: Any) -> None:
    if isinstance(node, dict):
        ref = node.get("$ref")
        if isinstance(ref, str) and ref.rsplit("/", 1)[1] in RENAMED and "/schemas/" in ref:
            node["$ref"] = "#/components/schemas/" + RENAMED[ref.rsplit("/", 1)[1]]
        for v in node.values():
            rename(v)
    elif isinstance(node, list):
        for v in node:
            rename(v)


def load() -> dict[str, Any]:
    spec: dict[str, Any] = yaml.safe_load(SPEC.read_text())
    schemas = spec["components"]["schemas"]
    flatten(schemas)
    spec["components"]["schemas"] = {RENAMED.get(k, k): v for k, v in schemas.items()}
    rename(spec)
    return spec


def models(spec: dict[str, Any]) -> str:
    with tempfile.TemporaryDirectory() as d:
        source, target = Path(d, "openapi.yaml"), Path(d, "models.py")
        source.write_text(yaml.safe_dump(spec, sort_keys=False, allow_unicode=True))
        subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "datamodel_code_generator",
             "--input", source, "--input-file-type", "openapi", "--openapi-scopes", "schemas",
             "--output-model-type", "dataclasses.dataclass", "--target-python-version", "3.10",
             "--no-use-union-operator", "--use-standard-collections", "--strict-nullable", "--output-datetime-class", "datetime",
             "--use-schema-description", "--use-field-description", "--disable-timestamp",
             "--formatters", "builtin",
             "--custom-file-header", '"""The schemas of api/openapi.yaml. Generated, see tools/generate.py."""\n',
             "--output", target],
            check=True,
        )
        return target.read_text()


def snake(name: str) -> str:
    name = re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).replace("-", "_").lower()
    return name + "_" if keyword.iskeyword(name) else name


def schema_type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return "m." + schema["$ref"].rsplit("/", 1)[1]
    if schema.get("type") == "array":
        return f"Sequence[{schema_type(schema['items'])}]"
    return PYTHON_TYPES[schema.get("type", "string")]


class Operation:
    """One operation, as a function that describes the call."""

    def __init__(self, spec: dict[str, Any], method: str, path: str, item: dict[str, Any], op: dict[str, Any]):
        self.name, self.method, self.path, self.op = op["operationId"], method.upper(), path, op
        parameters = spec["components"]["parameters"]
        every = [
            parameters[p["$ref"].rsplit("/", 1)[1]] if "$ref" in p else p
            for p in [*item.get("parameters", []), *op.get("parameters", [])]
        ]
        self.in_path = [p for p in every if p["in"] == "path"]
        self.in_query = [p for p in every if p["in"] == "query"]
        self.in_header = [p for p in every if p["in"] == "header"]

    def body(self) -> tuple[str, str]:
        """The type of a JSON body, "" for none, and the content type of a raw one."""
        request = self.op.get("requestBody")
        if not request:
            return "", ""
        kind, content = next(iter(request["content"].items()))
        if kind == "application/json":
            return schema_type(content["schema"]), ""
        return "", kind

    def answer(self) -> tuple[str, str]:
        """The type of the call, and what it decodes answers with."""
        good = next(v for k, v in self.op["responses"].items() if k.startswith("2"))
        if "content" not in good:
            return "Call[None]", "None"
        kind, content = next(iter(good["content"].items()))
        if kind == "application/json":
            t = schema_type(content["schema"])
            return f"Call[{t}]", t
        if kind == "application/x-ndjson":
            t = schema_type(content["schema"])
            return f"Lines[{t}]", t
        if kind == "text/event-stream":
            t = schema_type(content["schema"])
            return f"ServerEvents[{t}]", t
        if kind == "text/plain":
            return "Call[str]", "str"
        return "Raw", "bytes"

    def source(self) -> str:
        def typed(p: dict[str, Any]) -> str:
            t = schema_type(p.get("schema", {}))
            return f"{snake(p['name'])}: {t}" if p.get("required") else f"{snake(p['name'])}: Optional[{t}] = None"

        args = [typed(p) for p in self.in_path]
        json_body, raw = self.body()
        if json_body:
            optional = not self.op["requestBody"].get("required")
            args.append(f"body: Optional[{json_body}] = None" if optional else f"body: {json_body}")
        named = sorted((typed(p) for p in [*self.in_query, *self.in_header]), key=lambda a: "=" in a)
        if named:
            args += ["*", *named]
        kind, answer = self.answer()
        path = self.path
        for p in self.in_path:
            path = path.replace("{" + p["name"] + "}", "{path_part(" + snake(p["name"]) + ")}")
        lines = [
            f"def {snake(self.name)}({', '.join(args)}) -> {kind}:",
            f'    """{self.op["summary"]}."""',
            f"    return {kind.split('[')[0]}(",
            f'        "{self.name}", "{self.method}", {"f" if self.in_path else ""}"{path}", {answer},',
        ]
        if self.in_query:
            lines.append("        params=query_params({" + ", ".join(f'"{p["name"]}": {snake(p["name"])}' for p in self.in_query) + "}),")
        if self.in_header:
            lines.append("        headers=header_params({" + ", ".join(f'"{p["name"]}": {snake(p["name"])}' for p in self.in_header) + "}),")
        if json_body:
            lines.append("        body=body,")
        if raw:
            lines.append(f'        content_type="{raw}",')
        return "\n".join([*lines, "    )"])


HEADER = '''"""A function for each operation of api/openapi.yaml. Generated, see tools/generate.py.

Each describes a call, which the transport makes.
"""

from __future__ import annotations

from typing import Optional, Sequence

from .._calls import Call, Lines, Raw, ServerEvents, header_params, path_part, query_params
from . import models as m
'''


def operations(spec: dict[str, Any]) -> str:
    out = [HEADER]
    for path, item in spec["paths"].items():
        for method in ("get", "put", "post", "patch", "delete"):
            # One that answers with another protocol is made by hand, in ports.py.
            if method in item and "101" not in item[method]["responses"]:
                out.append(Operation(spec, method, path, item, item[method]).source())
    return "\n\n".join(out) + "\n"


def generated() -> dict[Path, str]:
    spec = load()
    files = {
        PACKAGE / "_generated" / "__init__.py": '"""What comes from api/openapi.yaml."""\n',
        PACKAGE / "_generated" / "models.py": models(spec),
        PACKAGE / "_generated" / "operations.py": operations(spec),
    }
    return {**files, **unasync.files()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only say what is not current")
    parser.add_argument("--sync-only", action="store_true", help="only the synchronous half, which needs no generator")
    args = parser.parse_args()
    stale = []
    for path, text in (unasync.files() if args.sync_only else generated()).items():
        if path.exists() and path.read_text() == text:
            continue
        stale.append(path)
        if not args.check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    if args.check and stale:
        print("not current, run 'make generate-sdk':", *(str(p.relative_to(HERE.parent)) for p in stale), sep="\n  ")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
