"""What is fuzzed: for each kind of input whole examples, how they are damaged, and the code that reads them."""

from __future__ import annotations

import io
import json
import pickle
import random
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from PIL import Image
from safetensors.torch import save as to_safetensors

from manyview import encoders
from manyview.cli.arguments import parsed
from manyview.cli.main import COMMANDS
from manyview.comparison import compare, outcome
from manyview.comparison.plan import MeasuredEpochs, Plan
from manyview.config.keys import flag_name
from manyview.config.recipes import from_yaml, to_yaml
from manyview.config.resolve import resolve, schema
from manyview.data.dataset import Unreadable
from manyview.data.image import decode, decode_array, decode_own, read_header
from manyview.embeddings import About, file_format
from manyview.encoders import timm_models, torchvision_models  # noqa: F401  (slow, and not to be timed)
from manyview.evaluate import results
from manyview.report.run_record import read_records
from manyview.training import checkpoint
from manyview.training.launch import configured
from manyview.training.run import METRICS, Run
from tests.fuzz.mutations import ODD_VALUES, damaged_bytes, damaged_tree

SPRUNG = "sprung"  # the file that code from a file would make
Damage = Callable[[random.Random], Any]
METHODS = ("simclr", "moco_v2", "jcl", "cacr", "dcl")


@dataclass(frozen=True)
class Kind:
    """One kind of input: `damage` draws a case, `read` does with it what a command does."""

    name: str
    damage: Damage
    read: Callable[[Any], object]


class Evil:
    """What would run code, were it unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (self.path, "w")


def kinds(home: Path) -> list[Kind]:
    """All kinds, with their examples and the folder that cases lie in."""
    made = (images, arrays, checkpoints, safetensors, embeddings, settings, records, comparisons, flags)
    return [kind for make in made for kind in make(home)]


def images(home: Path) -> list[Kind]:
    draw = np.random.default_rng(0)
    picture = Image.fromarray(draw.integers(0, 256, (24, 20, 3), dtype=np.uint8))
    deep = Image.fromarray(draw.integers(0, 2**16, (24, 20)).astype(np.uint16))
    options: list[tuple[str, dict[str, Any]]] = [
        ("PNG", {}), ("JPEG", {}), ("WEBP", {}), ("BMP", {}), ("TIFF", {}), ("GIF", {}), ("PPM", {}),
        ("TIFF", {"compression": "tiff_lzw"}), ("JPEG", {"progressive": True}), ("WEBP", {"lossless": True}),
    ]  # fmt: skip
    whole = [_saved(picture, *each) for each in options]
    whole += [_saved(deep, "PNG", {}), _saved(picture.convert("P"), "PNG", {})]
    whole.append(_saved(picture.convert("CMYK"), "JPEG", {}))

    def read(content: bytes) -> None:
        refused = None
        for way in (read_header, decode, decode_own):
            try:
                way(content)
            except Unreadable as error:
                refused = error
        if refused is not None:
            raise refused

    return [Kind("image", lambda draw: damaged_bytes(draw.choice(whole), whole, draw), read)]


def arrays(home: Path) -> list[Kind]:
    whole = []
    for array in (np.zeros((3, 8, 8), np.uint8), np.ones((8, 9)), np.array([Evil(home / SPRUNG)], object)):
        file = io.BytesIO()
        np.save(file, array)
        whole.append(file.getvalue())
    path = home / "array.npy"

    def read(content: bytes) -> None:
        path.write_bytes(content)
        decode_array(path)

    return [Kind("npy array", lambda draw: damaged_bytes(draw.choice(whole), whole, draw), read)]


def checkpoints(home: Path) -> list[Kind]:
    state = {
        "method": {"weight": torch.randn(4, 3), "step": torch.tensor(3)}, "optimizer": {"state": {0: torch.ones(2)}},
        "state": {"step": 3, "epoch": 0}, "settings": {"lr": 0.1, "name": "x"}, "world": 1,
    }  # fmt: skip
    path = home / "checkpoints" / "step-000000003.pt"
    path.parent.mkdir()
    checkpoint.write(state, path)
    whole = [path.read_bytes()]
    file = io.BytesIO()
    torch.save({"method": Evil(home / SPRUNG)}, file)
    whole += [file.getvalue(), pickle.dumps(Evil(home / SPRUNG))]

    def damage(draw: random.Random) -> bytes:
        content = damaged_bytes(draw.choice(whole), whole, draw) if draw.random() < 0.9 else draw.choice(whole)
        return sealed(content) if draw.random() < 0.7 else content

    def read(content: bytes) -> None:
        path.write_bytes(content)
        checkpoint.Checkpoints(path.parent).latest()
        checkpoint.read(path)

    return [Kind("checkpoint", damage, read)]


def sealed(content: bytes) -> bytes:
    """With the check sum that the content has, as somebody who means harm would give it."""
    body = content[: -checkpoint.SEAL] if len(content) > checkpoint.SEAL else content
    return body + f"{zlib.crc32(body):0{checkpoint.SEAL}x}".encode()


def safetensors(home: Path) -> list[Kind]:
    path = home / "encoder.safetensors"
    encoder = encoders.create("patchnet", size=16, widths=(4,), blocks=(1,))
    encoders.save(encoder, path, picture=((0.5,) * 3, (0.5,) * 3))
    whole = [path.read_bytes()]
    recipe = {"name": encoder.name, "options": encoder.options, "picture": {"mean": [0.5], "std": [0.5]}}
    state = encoder.network.state_dict()

    def tree(draw: random.Random) -> bytes:
        told = damaged_tree(recipe, draw)
        told = told if isinstance(told, dict) else {}
        metadata = {"manyview_encoder": "1", **{str(key): _json(value) for key, value in told.items()}}
        kept = {key: value for key, value in state.items() if draw.random() < 0.97}
        kept = {key: value.to(torch.int8) if draw.random() < 0.02 else value for key, value in kept.items()}
        return to_safetensors(kept, {key: value.encode("utf-8", "replace").decode() for key, value in metadata.items()})

    def damage(draw: random.Random) -> bytes:
        return tree(draw) if draw.random() < 0.5 else damaged_bytes(whole[0], whole, draw)

    def read(content: bytes) -> None:
        path.write_bytes(content)
        encoders.load(path)

    return [Kind("safetensors", damage, read)]


def embeddings(home: Path) -> list[Kind]:
    path = home / "embeddings.npz"
    about = About(
        "run", "patchnet", "0" * 32, 16, (0.5,), (0.5,), "image", "photos", {}, str(home), ("a", "b"), "float32", 4,
        "0" * 32, "0.1", {},
    )  # fmt: skip
    count = 5
    paths = np.array([b"%d.png" % number for number in range(count)])
    columns = {"path": paths, "id": np.arange(count), "label": np.arange(count) % 2}
    vectors = np.random.default_rng(0).normal(size=(count, 6)).astype(np.float32)
    file_format.write(path, about, columns, iter([vectors]))
    whole = [path.read_bytes()]

    def damage(draw: random.Random) -> bytes:
        if draw.random() < 0.7:
            return damaged_bytes(whole[0], whole, draw)
        told = damaged_tree(json.loads(about.to_json()), draw)
        text = _json(told).encode("utf-8", "replace")
        file = io.BytesIO()
        np.savez(file, about=np.array(text), vector=vectors, **columns)  # type: ignore[arg-type]
        return file.getvalue()

    def read(content: bytes) -> None:
        path.write_bytes(content)
        found = file_format.read(path)
        assert len(found.names) == len(found)
        for row in range(len(found)):
            found.label(row), found.file(row)
        found.vectors.sum()

    return [Kind("npz", damage, read)]


def settings(home: Path) -> list[Kind]:
    path = home / "config.yaml"
    trees = [yaml.safe_load(to_yaml(resolve({"data.name": "scenes", "method.name": name}, {}))) for name in METHODS]
    whole = [yaml.safe_dump(tree, sort_keys=False).encode() for tree in trees]
    bombs = [b"a: " + b"[" * 3000, b"{" * 3000, b"? " * 2000, b"c: !!python/object/apply:os.system [x]\n"]
    bombs.append(b"a: &a [x, x]\n" + b"".join(b"%c: &%c [*%c, *%c]\n" % (c + 1, c + 1, c, c) for c in range(97, 120)))

    def damage(draw: random.Random) -> bytes:
        if draw.random() < 0.02:
            return draw.choice(bombs)
        if draw.random() < 0.4:
            return damaged_bytes(draw.choice(whole), whole, draw)
        text = yaml.safe_dump(damaged_tree(draw.choice(trees), draw), allow_unicode=True)
        return text.encode("utf-8", "surrogatepass")

    def read(content: bytes) -> None:
        path.write_bytes(content)
        to_yaml(from_yaml(path))

    return [Kind("YAML", damage, read)]


def records(home: Path) -> list[Kind]:
    """results.json and metrics.jsonl in a run's folder, as the report reads them."""
    folder = home / "run"
    folder.mkdir()
    (folder / "config.yaml").write_text(to_yaml(resolve({"data.name": "scenes", "method.name": "simclr"}, {})))
    lines: list[dict[str, Any]] = [
        {"step": step, "epoch": step / 4, "loss": 3.0 - step / 9, "lr": 0.1, "seconds": step * 0.5, "knn": 0.5,
         "rank": 3.0, "rank_limit": 8.0, "query_similarity": 0.1, "alignment": 0.2, "uniformity": -1.0, "loss.a": 1.0}
        for step in range(9)
    ]  # fmt: skip
    scored = results.Result(
        protocol="knn", settings={"k": 5, "temperature": 0.1}, scores={"top1": 0.5, "top5": 0.9},
        data={"name": "scenes", "train": 9, "test": 3, "classes": 2, "held_out": True}, seed=0,
        model={"name": "run", "encoder": "patchnet", "size": 16, "trained": True, "checksum": "0"},
        version="0.1.0", when="2026-01-01T00:00:00", seconds=1.0, untrained={"top1": 0.2},
    )  # fmt: skip
    results.put(folder, scored)
    entries = json.loads((folder / results.FILE).read_text())

    def read_metrics(content: bytes) -> None:
        (folder / METRICS).write_bytes(content)
        run = Run(folder)
        outcome.score_curve(run)
        for record in read_records([run]):
            for name in ("loss", "knn", "rank", "lr"):
                record.curve(name), record.curve(name, over="seconds")
            _ = record.steps, record.seconds, record.epochs, record.date, record.knn, record.untrained, record.verdict
            _ = record.steps_per_epoch, record.method, record.data, record.finished

    def read_results(content: bytes) -> None:
        (folder / results.FILE).write_bytes(content)
        for each in results.read(folder):
            _ = each.key, each.score
        results.find(folder, scored)
        results.put(folder, replace(scored, seed=1))

    return [
        Kind("metrics.jsonl", _json_damage(lines, lines=True), read_metrics),
        Kind("results.json", _json_damage(entries), read_results),
    ]


def comparisons(home: Path) -> list[Kind]:
    folder = home / "compared"
    folder.mkdir()
    points = [outcome.Point(0.0, 0.0, 0.2), outcome.Point(1.0, 2.0, 0.5)]
    scores = {outcome.KNN: [0.5, 0.6], "linear top1": [0.7, 0.8]}
    each = [
        outcome.MethodOutcome(name, (0, 1), 8, 2, 4, 32, [points, points], scores, [1.0, 2.0], 1000)
        for name in ("simclr", "dcl")
    ]
    tree = json.loads(json.dumps(outcome.Outcome(folder, "scenes", each, 10, ("cacr",)).to_json()))

    def read(content: bytes) -> None:
        (folder / outcome.OUTCOME).write_bytes(content)
        found = outcome.read(folder)
        found.table(), found.scores, found.caveat, found.equal_images

    plan = Plan(
        [100, "0" * 32, "1" * 32], 2.0, {"simclr": MeasuredEpochs(3.5, "0" * 32), "dcl": MeasuredEpochs(4.0, "1")}
    )

    def read_plan(content: bytes) -> None:
        (folder / compare.PLAN).write_bytes(content)
        found = compare.read_plan(folder, [])
        json.dumps(asdict(found), allow_nan=False)
        sum(each.epochs for each in found.epochs.values())

    return [
        Kind("comparison.json", _json_damage(tree), read),
        Kind("plan.json", _json_damage(json.loads(json.dumps(asdict(plan)))), read_plan),
    ]


def flags(home: Path) -> list[Kind]:
    keys = [flag_name(key) for name in METHODS for key in schema({"method.name": name})]
    values = [*map(str, ODD_VALUES), "1e20", "-1e20", "9" * 20, "1:30", "0x10", "{a: [", "[" * 9999, "null", "[1,2]"]
    values += ["1", "2", "0.5", "auto", "cpu", "simclr", "knn", "timm", "onnx", "e.npz", "x"] * 4
    places = {name: place.split(":") for name, (place, _) in COMMANDS.items()}
    commands = {name: getattr(import_module(module), function) for name, (module, function) in places.items()}

    def damage(draw: random.Random) -> list[str]:
        words = [draw.choice(list(commands))]
        words += ["somewhere"] * draw.randrange(3)
        for _ in range(draw.randrange(1, 4)):
            own = [flag_name(each) for each in commands[words[0]].__kwdefaults__ or ()]
            key = draw.choice(keys if draw.random() < 0.5 or not own else own)
            word = f"--{key}"
            if draw.random() < 0.1:
                word = damaged_bytes(word.encode(), [b"--"], draw).decode("utf-8", "replace")
            value = draw.choice(values)
            words += draw.choice(([word, value], [f"{word}={value}"], [word]))
        return words

    def read(words: list[str]) -> None:
        given = parsed(commands[words[0]], words[1:])
        if words[0] == "pretrain" and not given.get("resume") and not given.get("help"):
            known = {"recipe", "resume", "smoke", "help"}
            own = {key: value for key, value in given.items() if key not in known}
            configured(given.get("recipe"), {"data.name": "scenes", **own}, smoke=bool(given.get("smoke")))

    return [Kind("flags", damage, read)]


def _saved(image: Image.Image, kind: str, options: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _json_damage(tree: Any, *, lines: bool = False) -> Damage:
    def written(found: Any) -> bytes:
        if lines and isinstance(found, list):
            return "\n".join(map(_json, found)).encode("utf-8", "surrogatepass")
        return _json(found).encode("utf-8", "surrogatepass")

    whole = [written(tree)]
    bombs = [b"[" * 100_000, b'{"a":' * 50_000, b"9" * 9_999, b"null", b"\xff\xfe", b"1e999", b'[{"a": ' + b"9" * 5000]

    def damage(draw: random.Random) -> bytes:
        if draw.random() < 0.02:
            return draw.choice(bombs)
        return damaged_bytes(whole[0], whole, draw) if draw.random() < 0.4 else written(damaged_tree(tree, draw))

    return damage
