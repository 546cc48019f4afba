"""Files that people have: odd, broken, foreign or merely unusual, by name. The target is ``y`` where there is one.

Every reader of tables must either work on each of them or refuse it in one sentence; ``REFUSED`` holds the names of
those in which there is no table to be read.
"""

import bz2
import functools
import gzip
import io
import itertools
import json
import lzma
import random
import struct
import zipfile
from collections.abc import Callable, Iterable

import pyarrow as pa
import pyarrow.parquet as pq

from demur.tabular import open_table

__all__ = ["REFUSED", "hostile_files", "plain_rows"]


def plain_rows(n: int = 60) -> list[list[str]]:
    """Return rows of a table that nothing is wrong with: two numbers, a category and a class that depends on them."""
    draw = random.Random(0)
    rows = []
    for _ in range(n):
        a, b, kind = draw.gauss(0, 1), draw.uniform(0, 10), draw.choice(["red", "green", "blue"])
        rows.append([f"{a:.3f}", f"{b:.2f}", kind, "cat" if a + (kind == "red") > 0.3 else "dog"])
    return rows


def _text(rows: Iterable[Iterable[str]], header: str = "a,b,kind,y", delimiter: str = ",", end: str = "\n") -> bytes:
    lines = [header, *(delimiter.join(row) for row in rows)]
    return (end.join(lines) + end).encode()


def _with(name: str, values: Callable[[int], str], n: int = 60) -> bytes:
    """Return the plain table with one more column."""
    rows = [[*row[:3], values(position), row[3]] for position, row in enumerate(plain_rows(n))]
    return _text(rows, f"a,b,kind,{name},y")


def _target(values: Callable[[int], str], n: int = 60) -> bytes:
    return _text([*row[:3], values(position)] for position, row in enumerate(plain_rows(n)))


def _arrow(**more: object) -> pa.Table:
    rows = plain_rows()
    columns: dict[str, object] = {
        "a": [float(row[0]) for row in rows],
        "kind": [row[2] for row in rows],
        **more,
        "y": [row[3] for row in rows],
    }
    return pa.table(columns)


def _parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def _ipc(table: pa.Table, *, stream: bool) -> bytes:
    sink = io.BytesIO()
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _damaged_offsets() -> bytes:
    """Return an Arrow file whose text lies, by its own account, far outside it: trusting it crashes the process."""
    data = _ipc(_arrow(), stream=False)
    ends = list(itertools.accumulate(len(row[2]) for row in plain_rows()))
    damaged = data.replace(struct.pack("<60i", *ends), struct.pack("<60i", *(end + (1 << 28) for end in ends)))
    assert damaged != data
    return damaged


def _zip(data: bytes) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        archive.writestr("data.csv", data)
    return sink.getvalue()


def _nothing_to_read() -> dict[str, bytes]:
    plain, rows = _text(plain_rows()), plain_rows()
    text = plain.decode()
    parquet, arrow = _parquet(_arrow()), _ipc(_arrow(), stream=False)
    noise = random.Random(1).randbytes(5_000)
    return {
        "empty.csv": b"",
        "only_newline.csv": b"\n",
        "only_blank_lines.csv": b"\r\n  \r\n\n",
        "only_mark.csv": b"\xef\xbb\xbf",
        "header_only.csv": b"a,b,kind,y\n",
        "header_only_no_newline.csv": b"a,b,kind,y",
        "header_only_compressed.csv.gz": gzip.compress(b"a,b,y\n"),
        "empty_compressed.csv.gz": gzip.compress(b""),
        "duplicated_headers.csv": _text(rows, "a,a,kind,y"),
        "duplicated_target.csv": _text(rows, "a,b,y,y"),
        "duplicated_after_stripping.csv": _text(rows, "a, a,kind,y"),
        "many_duplicated_headers.csv": b",".join([b"x"] * 500) + b"\n" + b",".join([b"1"] * 500) + b"\n",
        "empty_header_name.csv": _text(rows, "a,,kind,y"),
        "all_header_names_empty.csv": b",,,\n1,2,3,4\n",
        "ragged_short.csv": plain + b"1.0,2.0\n" + plain.split(b"\n", 1)[1],
        "ragged_long.csv": plain + b"1.0,2.0,red,cat,extra\n",
        "trailing_delimiters_in_rows.csv": _text([*row, ""] for row in rows),
        "trailing_delimiters_everywhere.csv": _text(([*row, ""] for row in rows), "a,b,kind,y,"),
        "comment_lines_first.csv": b"# made by a program\n# version 2\n" + plain,
        "title_above_header.csv": b"Quarterly figures\n\n" + plain,
        "unterminated_quote.csv": plain + b'1.0,2.0,"red,cat\n' + plain.split(b"\n", 1)[1],
        "unterminated_quote_in_header.csv": b'a,"b,kind,y\n' + plain.split(b"\n", 1)[1],
        "nul_bytes.csv": plain.replace(b"red", b"r\0d"),
        "utf16_without_mark.csv": text.encode("utf-16-le"),
        "utf16_cut.csv": b"\xff\xfe" + text.encode("utf-16-le")[:-1],
        "binary_junk.csv": noise,
        "junk_after_header.csv": b"a,b,kind,y\n" + noise,
        "truncated.csv.gz": gzip.compress(plain * 50)[:-20],
        "damaged.csv.gz": gzip.compress(noise)[:2_000] + b"\0" * 50 + gzip.compress(noise)[2_050:],
        "truncated.csv.bz2": bz2.compress(plain)[:-20],
        "truncated.csv.xz": lzma.compress(plain)[:-20],
        "damaged.csv.xz": lzma.compress(noise)[:2_000] + b"\0" * 50 + lzma.compress(noise)[2_050:],
        "truncated.csv.zst": pa.compress(plain, codec="zstd", asbytes=True)[:-20],
        "twice_compressed.csv.gz": gzip.compress(gzip.compress(plain)),
        "archive.zip": _zip(plain),
        "zip_named_csv.csv": _zip(plain),
        "workbook.xlsx": _zip(b"<worksheet/>"),
        "workbook.xls": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + noise[:500],
        "picture.csv": b"\x89PNG\r\n\x1a\n" + noise[:500],
        "document.csv": b"%PDF-1.7\n" + noise[:500],
        "truncated.parquet": parquet[:-30],
        "parquet_head_only.parquet": parquet[:4],
        "parquet_damaged_footer.parquet": parquet[:-60] + b"\xff" * 40 + parquet[-20:],
        "parquet_no_rows.parquet": _parquet(_arrow().slice(0, 0)),
        "truncated.arrow": arrow[:-100],
        "arrow_damaged_offsets.arrow": _damaged_offsets(),
        "truncated_stream.arrows": _ipc(_arrow(), stream=True)[:300],
        "records.json": json.dumps([{"a": 1, "y": "cat"}]).encode(),
        "page.html": b"<!DOCTYPE html><html><body>Not found</body></html>",
        "pickle.csv": b"\x80\x04\x95" + noise[:200],
    }


def _written_otherwise() -> dict[str, bytes]:
    plain, rows = _text(plain_rows()), plain_rows()
    text, header = plain.decode(), "a,b,kind,y"
    comma = [[cell.replace(".", ",") for cell in row] for row in rows]
    quoted = _text([[f'"{cell}"' for cell in row] for row in rows], '"a","b","kind","y"')
    records = [dict(zip(header.split(","), row, strict=True)) for row in rows]
    return {
        "leading_index_column.csv": _text(([str(i), *row] for i, row in enumerate(rows)), ",a,b,kind,y"),
        "lines.jsonl": b"".join(json.dumps(one | {"a": float(one["a"])}).encode() + b"\n" for one in records),
        "plain.csv": plain,
        "no_suffix": plain,
        "mark.csv": b"\xef\xbb\xbf" + plain,
        "utf16_le.csv": b"\xff\xfe" + text.encode("utf-16-le"),
        "utf16_be.csv": b"\xfe\xff" + text.encode("utf-16-be"),
        "latin1.csv": text.replace("red", "café").encode("latin-1"),
        "latin1_header.csv": text.replace("kind", "größe").encode("cp1252"),
        "cp1252_undefined_byte.csv": plain.replace(b"red", b"r\x81\xe9d"),
        "utf8_then_latin1.csv": plain + "1,2,café,cat\n".encode() + "1,2,café,cat\n".encode("latin-1"),
        "crlf.csv": _text(rows, end="\r\n"),
        "cr_only.csv": _text(rows, end="\r"),
        "mixed_line_ends.csv": plain.replace(b"\n", b"\r\n", 20),
        "no_newline_at_end.csv": plain.rstrip(),
        "blank_lines_between.csv": plain.replace(b"\n", b"\n\n"),
        "blank_lines_first.csv": b"\n\n" + plain,
        "tabs.tsv": plain.replace(b",", b"\t"),
        "pipes.csv": plain.replace(b",", b"|"),
        "semicolons.csv": plain.replace(b",", b";"),
        "spaces.txt": plain.replace(b",", b" "),
        "excel_hint.csv": b"sep=;\n" + plain.replace(b",", b";"),
        "decimal_commas.csv": _text(comma, "a;b;kind;y", ";"),
        "spaces_after_commas.csv": plain.replace(b",", b", "),
        "all_quoted.csv": quoted,
        "quotes_inside.csv": plain.replace(b"red", b'"the ""red"" one"'),
        "odd_inch_mark.csv": plain + b'1.0,2.0,5" pipe,cat\n',
        "single_quotes.csv": plain.replace(b"red", b"'red'"),
        "newlines_in_quotes.csv": plain.replace(b"red", b'"red\nlight"'),
        "delimiters_in_quotes.csv": plain.replace(b"red", b'"red, or so"'),
        "newline_in_header.csv": plain.replace(b"kind", b'"kind\nof thing"', 1),
        "whitespace_in_headers.csv": plain.replace(header.encode(), b" a ,\tb,  kind,y  "),
        "two_header_rows.csv": b"a,b,kind,y\n[m],[kg],[-],[-]\n" + plain.split(b"\n", 1)[1],
        "gzip_named_csv.csv": gzip.compress(plain),
        "csv_named_gzip.csv.gz": plain,
        "csv_named_parquet.parquet": plain,
        "many_members.csv.gz": gzip.compress(plain) + gzip.compress(plain.split(b"\n", 1)[1]),
        "compressed.csv.bz2": bz2.compress(plain),
        "compressed.csv.xz": lzma.compress(plain),
        "compressed.csv.zst": pa.compress(plain, codec="zstd", asbytes=True),
        "plain.parquet": _parquet(_arrow()),
        "parquet_named_csv.csv": _parquet(_arrow()),
        "compressed_parquet.parquet.gz": gzip.compress(_parquet(_arrow())),
        "nested.parquet": _parquet(_arrow(points=[[1, 2]] * 60, record=[{"u": 1}] * 60, blob=[b"\0\1"] * 60)),
        "dictionary.parquet": _parquet(_arrow(colour=pa.array(["x", "y", None] * 20).dictionary_encode())),
        "decimal.parquet": _parquet(_arrow(price=pa.array(range(0, 120, 2)).cast(pa.decimal128(22, 2)))),
        "plain.arrow": _ipc(_arrow(), stream=False),
        "plain.feather": _ipc(_arrow(), stream=False),
        "stream.arrows": _ipc(_arrow(), stream=True),
    }


def _odd_values() -> dict[str, bytes]:
    draw = random.Random(2)
    missing = ["", "NA", "N/A", "NaN", "nan", "null", "NULL", "?", "-", " NA", "None"]
    return {
        "missing_spellings.csv": _with("x", lambda i: missing[i % 11] if i % 2 else f"{i}.5"),
        "infinities.csv": _with("x", lambda i: ["inf", "-inf", "Infinity", "1.5", "2"][i % 5]),
        "only_infinities.csv": _with("x", lambda i: ["inf", "-inf"][i % 2]),
        "beyond_float.csv": _with("x", lambda i: f"{i}e{400 - 200 * (i % 2)}"),
        "beyond_int64.csv": _with("x", lambda i: str(10**25 + i)),
        "negative_zero.csv": _with("x", lambda i: ["-0", "0", "-0.0"][i % 3]),
        "hexadecimal.csv": _with("x", lambda i: hex(i * i % 50)),
        "thousands_separators.csv": _with("x", lambda i: f'"{i * 1234567 % 9_999_999:,}"'),
        "percent.csv": _with("x", lambda i: f"{i * 37 % 100}.5%"),
        "currency.csv": _with("x", lambda i: f"€{i * 37 % 100}.{i:02d}"),
        "numbers_as_text.csv": _with("x", lambda i: f'"{i * 7 % 60}"'),
        "leading_zeros.csv": _with("x", lambda i: f"{i * 7 % 60:05d}"),
        "underscored_numbers.csv": _with("x", lambda i: f"1_{i:03d}"),
        "mixed_types.csv": _with("x", lambda i: ["1", "2.5", "three", "true", "2024-01-01", ""][i % 6]),
        "text_in_last_row.csv": _with("x", lambda i: "unknown" if i == 59 else str(i % 7)),
        "booleans.csv": _with("x", lambda i: ["true", "FALSE", "True", ""][i % 4]),
        "yes_and_no.csv": _with("x", lambda i: ["yes", "no"][i * i % 3 % 2]),
        "dates.csv": _with("x", lambda i: f"2024-{1 + i % 12:02d}-{1 + i % 28:02d}"),
        "dates_and_times.csv": _with("x", lambda i: f"2024-01-{1 + i % 28:02d}" + " 10:30" * (i % 2)),
        "dates_with_zones.csv": _with("x", lambda i: f"2024-01-{1 + i % 28:02d}T10:30:00Z"),
        "dates_local_style.csv": _with("x", lambda i: f"{1 + i % 28}/{1 + i % 12}/2024"),
        "dates_far_away.csv": _with("x", lambda i: ["0001-01-01", "9999-12-31", "1969-12-31"][i % 3]),
        "times_of_day.csv": _with("x", lambda i: f"{i % 24:02d}:{i:02d}"),
        "all_missing_column.csv": _with("x", lambda i: ""),
        "constant_column.csv": _with("x", lambda i: "same"),
        "identifier_column.csv": _with("customer_id", lambda i: f"C-{i * 7919 % 1000}"),
        "row_numbers.csv": _with("n", str),
        "free_text.csv": _with(
            "x", lambda i: " ".join(draw.choices(["some", "long", "words", "follow"], k=12)) + str(i)
        ),
        "columns_named_like_ours.csv": _text(plain_rows(), "prediction,rejected,confidence,y"),
        "more_columns_named_like_ours.csv": _text(plain_rows(), "label,second_choice,reject,y"),
        "emoji.csv": _text(plain_rows(), "😀,b,kind,y").replace(b"red", "🟥".encode()),
        "script_names.csv": _text(plain_rows(), "<script>alert(1)</script>,b,kind,y").replace(b"red", b"<b>red</b>"),
        "formula_values.csv": _with("x", lambda i: ["=1+1", "@cmd", "+2"][i % 3]),
        "control_characters_in_names.csv": _text(plain_rows(), "a\x1b[31m,b,kind,y"),
        "right_to_left.csv": _text(plain_rows(), "a,b,\u202egnirts,y"),
        "very_long_name.csv": _text(plain_rows(), f"{'a' * 10_000},b,kind,y"),
        "very_long_field.csv": _with("x", lambda i: "z" * 1_000_000 if i == 30 else "short"),
        "very_wide.csv": _wide(1_000, 40),
        "wider_than_long.csv": _wide(300, 3),
        "many_categories.csv": _with("x", lambda i: f"value {i % 25_000 * 13 % 50_000}", 50_000),
        "all_rows_equal.csv": _text([["1", "2", "red", "cat"]] * 60),
        "every_row_many_times.csv": _text(plain_rows(6) * 30),
    }


def _wide(n_columns: int, n_rows: int) -> bytes:
    draw = random.Random(3)
    rows = [[*(f"{draw.random():.3f}" for _ in range(n_columns)), "cat" if i % 2 else "dog"] for i in range(n_rows)]
    return _text(rows, ",".join([*(f"x{i}" for i in range(n_columns)), "y"]))


def _odd_targets() -> dict[str, bytes]:
    plain, rows = _text(plain_rows()), plain_rows()
    return {
        "one_row.csv": _text(rows[:1]),
        "two_rows.csv": _text(rows[:2]),
        "one_class.csv": _target(lambda i: "cat"),
        "class_of_one_row.csv": _target(lambda i: "rare" if i == 7 else ["cat", "dog"][i % 2]),
        "target_missing_in_some_rows.csv": _target(lambda i: "" if i % 5 == 0 else ["cat", "dog"][i % 2]),
        "target_missing_everywhere.csv": _target(lambda i: ""),
        "target_all_different.csv": _target(lambda i: f"class {i}"),
        "target_of_thousand_classes.csv": _target(lambda i: f"class {i % 1_000}", 3_000),
        "target_of_integers.csv": _target(lambda i: str(i % 3)),
        "target_of_floats.csv": _target(lambda i: f"{i % 3}.5"),
        "target_of_whole_floats.csv": _target(lambda i: f"{i % 3}.0"),
        "target_continuous.csv": _target(lambda i: f"{i * 0.37:.3f}"),
        "target_of_booleans.csv": _target(lambda i: ["true", "false"][i % 2]),
        "target_of_dates.csv": _target(lambda i: f"2024-01-0{1 + i % 3}"),
        "target_infinite.csv": _target(lambda i: ["inf", "1", "2"][i % 3]),
        "target_named_reject.csv": _target(lambda i: ["reject", "accept"][i % 2]),
        "target_minus_one.csv": _target(lambda i: str(i % 3 - 1)),
        "target_mixed.csv": _target(lambda i: ["1", "one"][i % 2]),
        "target_with_spaces.csv": _target(lambda i: ["cat", " cat", "dog"][i % 3]),
        "target_with_newlines.csv": _target(lambda i: ['"a\nb"', "c"][i % 2]),
        "target_in_capitals.csv": plain.replace(b",y\n", b",Y\n", 1),
        "target_absent.csv": plain.replace(b",y\n", b",z\n", 1),
        "target_alone.csv": _text([[row[3]] for row in rows], "y"),
        "target_and_constant.csv": _text([["1", row[3]] for row in rows], "a,y"),
        "target_nested.parquet": _parquet(_arrow().set_column(2, "y", pa.array([[1]] * 60))),
    }


REFUSED = frozenset(_nothing_to_read())


@functools.cache
def hostile_files() -> dict[str, bytes]:
    """Return all files, by name."""
    return {**_nothing_to_read(), **_written_otherwise(), **_odd_values(), **_odd_targets()}


def open_chunks(source, columns=None, chunk_rows=65_536, **notation):
    with open_table(source, **notation) as reader:
        types = {name: kind or pa.string() for name, kind in reader.columns.items()}
        yield from reader.chunks(types if columns is None else columns, chunk_rows)
