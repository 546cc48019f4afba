"""CSV as people write it: quotes, long headers, decimal commas, local dates, a spreadsheet's errors."""

import csv
import datetime
import io
import re
import warnings

import pyarrow as pa
import pytest
from hostile import open_chunks
from hypothesis import given, settings
from hypothesis import strategies as st

from demur.columns import Schema, TableError, TableWarning
from demur.tabular import csv_files, open_table, read_labelled, read_table
from demur.tabular.csv_files import decimal_of, order_of_dates
from demur.tabular.table_files import read_labels


def table_of(text, **options):
    return read_table(io.BytesIO(text if isinstance(text, bytes) else text.encode()), **options)


def opened(text, **options):
    return open_table(io.BytesIO(text.encode()), **options)


# Quotes are RFC 4180's, or nothing


@pytest.mark.parametrize("end", ["", "\n", "\n\n", "\r\n\r\n", "\n \n"])
@pytest.mark.parametrize("cell", ['5" pipe', '5"', 'a "b" c', "6' 2\"", '"quoted"', '"5"" pipe"', '""', 'x""'])
def test_a_quote_inside_a_cell_is_a_character(cell, end):
    text = f"what,n\n{cell},1\nrod,2{end}"
    if end == "\n \n":
        with pytest.raises(TableError, match="row 3 has 1 field"):
            table_of(text)
        return
    wanted = list(csv.reader(io.StringIO(text)))[1][0] or None
    assert table_of(text)["what"].to_pylist() == [wanted, "rod"]


@pytest.mark.parametrize("rows", ['1,"x\n2,3\n', '5" pipe,1\n"x,2\n', '1,2\n3,"', '"a"",b\n', '1,""""\n2,"""\n'])
@pytest.mark.parametrize("blank", ["", "\n\n"])
def test_a_quoted_field_that_never_ends_is_refused(rows, blank):
    for action in (
        lambda: table_of("a,b\n" + rows + blank),
        lambda: list(open_chunks(io.BytesIO(b"a,b\n" + rows.encode()))),
    ):
        with pytest.raises(TableError, match="quotation mark"):
            action()


pieces = st.sampled_from(['"', '""', "a", "5", " ", ",", "\n", "\r\n", "\r", "b"])


def closes(text):
    """Tell by hand whether the last quoted field ends: one character after the other."""
    inside, start, position = False, True, 0
    while position < len(text):
        letter = text[position]
        if inside:
            if letter == '"' and text[position + 1 : position + 2] == '"':
                position += 1
            elif letter == '"':
                inside = False
            start = False
        elif letter == '"' and start:
            inside = True
        else:
            start = letter in ",\n\r"
        position += 1
    return not inside


@settings(max_examples=80)
@given(
    st.integers(1, 3).flatmap(
        lambda n: st.lists(
            st.lists(st.lists(pieces, max_size=6).map("".join), min_size=n, max_size=n), min_size=1, max_size=6
        )
    ),
    st.booleans(),
    st.sampled_from([24, 64, 1 << 21]),
)
def test_any_text_is_read_as_the_csv_module_reads_it_or_refused(rows, blank, block):
    """Whatever stands in cells: the same fields, or a refusal where lengths differ or a quote is open."""
    text = "\n".join(",".join(cells) for cells in rows) + ("\n\n" if blank else "\n")
    names = ",".join(f"c{i}" for i in range(len(rows[0])))
    alone = len(rows[0]) == 1  # where an empty line is a row
    wanted = [record or [""] for record in csv.reader(io.StringIO(text, newline="")) if record or alone]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_files, "_BLOCK", block)
        patch.setattr(csv_files, "_ROW_ROOM", 0)
        columns = {f"c{i}": pa.string() for i in range(len(rows[0]))}
        source = io.BytesIO(f"{names}\n{text}".encode())
        refusal = ""
        try:
            found = pa.Table.from_batches(open_chunks(source, columns=columns, delimiter=","))
        except TableError as error:
            refusal = str(error)
    if refusal:
        too_long = "MB, or a quotation" in refusal
        ragged = any(len(record) != len(rows[0]) for record in wanted)
        assert too_long or ragged or not closes(text) or not text.strip(), refusal
        return
    assert closes(text)
    fields = [[value.strip() or None for value in record] for record in wanted]
    assert [list(row.values()) for row in found.to_pylist()] == fields


# Long headers


@pytest.mark.parametrize(("n", "name"), [(16_385, "a_rather_long_name_{}"), (100_000, "x{}")])
def test_a_header_beyond_256_kib(n, name):
    names = [name.format(i) for i in range(n)]
    text = (",".join(names) + "\n" + ",".join(["1"] * n) + "\n").encode()
    assert len(text.split(b"\n")[0]) > 1 << 18
    with open_table(io.BytesIO(text)) as reader:
        assert list(reader.columns) == names
        chunk = next(reader.chunks({names[-1]: pa.float64()}))
    assert chunk.to_pydict() == {names[-1]: [1.0]}


def test_a_header_with_an_open_quote_is_refused_in_bounded_memory(monkeypatch):
    monkeypatch.setattr(csv_files, "_HEAD", 1 << 19)
    with pytest.raises(TableError, match="quotation mark"):
        table_of('a,"b\n' + "1,2\n" * 200_000)


# Rows are counted from the first row of data


@pytest.mark.parametrize("blank", ["", "\n", "\n\n\n"])
def test_row_numbers_count_the_rows_of_data(blank):
    with pytest.raises(TableError, match=r"column 'a', row 2, holds 'x'"):
        list(open_chunks(io.BytesIO(f"a,b\n1,1\n{blank}x,2\n".encode()), columns={"a": pa.float64()}))
    with pytest.raises(TableError, match=r"row 2 has 3 fields"):
        table_of(f"a,b\n1,1\n{blank}1,2,3\n")


@pytest.mark.parametrize("word", ["#DIV/0!", "#N/A", "#REF!", "#VALUE!", "#NAME?", "#NUM!"])
def test_errors_of_a_spreadsheet_are_missing_and_said(word):
    text = f"x,t\n1.5,a\n{word},b\n{word},#REF!\n"
    with pytest.warns(TableWarning, match="3 cells with a spreadsheet error"):
        table = table_of(text)
    assert table.to_pydict() == {"x": [1.5, None, None], "t": ["a", "b", "#REF!"]}
    chunk = next(open_chunks(io.BytesIO(text.encode()), columns={"x": pa.float64()}))
    assert chunk["x"].to_pylist() == [1.5, None, None]


# Decimal commas and local dates


@pytest.mark.parametrize("unit", ["", " kg"])
def test_a_word_among_numbers_is_missing_and_said(unit):
    cells = [f"{k}.5{unit}" for k in range(30)] + ["unknown", " n.d."]
    reader = opened("x,y\n" + "".join(f"{cell},{cell}\n" for cell in cells))
    with pytest.warns(TableWarning) as caught:
        table = reader.read({"y"})
    words = "in column 'x', which holds numbers, these words are read as missing: 'n.d.', 'unknown'"
    assert any(words in str(one.message) for one in caught)
    assert table["x"].to_pylist() == [k + 0.5 for k in range(30)] + [None, None]
    assert pa.types.is_string(table["y"].type)
    again = opened("x\nunknown\n1.5\n", missing=reader.notation["missing"])
    assert next(again.chunks({"x": pa.float64()}))["x"].to_pylist() == [None, 1.5]


def test_a_word_for_missing_numbers_is_a_value_in_other_columns():
    rows = [f"{k}.5,{kind},{kind}" for k, kind in zip(range(30), "12u" * 10, strict=True)]
    text = "\n".join(["x,kind,y", *rows, "unknown,1,2"]).replace("u,u", "unknown,unknown")
    with opened(text) as reader, pytest.warns(TableWarning, match="in column 'x', which holds numbers"):
        table = reader.read({"y"})
    assert table["x"].null_count == 1
    for name in ("kind", "y"):
        assert table[name].value_counts().to_pylist()[-1] == {"values": "unknown", "counts": 10}
        assert table[name].null_count == 0


@pytest.mark.parametrize("odd", [["<0.01"], ["a", "b", "c", "d"], ["unknown"] * 20, ["12a"]])
def test_other_words_among_numbers_leave_a_column_text(odd):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = table_of("x\n" + "".join(f"{cell}\n" for cell in [*map(str, range(30)), *odd]))
    assert pa.types.is_string(table["x"].type)


def test_a_decimal_comma_is_understood_where_the_file_is_consistently_so():
    text = "x;n;t\n1,5;3;a\n-2,25;4;b\nNA;5;c\n1e-3;6;\n"
    with opened(text) as reader, pytest.warns(TableWarning, match=r"'1,5' are read with a decimal comma"):
        table = reader.read()
    assert table.to_pydict() == {"x": [1.5, -2.25, None, 0.001], "n": [3, 4, 5, 6], "t": ["a", "b", "c", None]}
    assert reader.notation["decimal"] == ","


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x;n\n1,234;1\n12,000;2\n", r"may be 1\.234 or 1234"),
        ("x;n\n1.234;1\n12.000;2\n", r"may be 1\.234 or 1234"),
        ("x,n\n999,1\n1.000,2\n", r"may be 1\.000 or 1000"),
    ],
)
def test_what_is_not_sure_stays_text_and_is_said(text, words):
    with opened(text) as reader, pytest.warns(TableWarning, match=words):
        table = reader.read()
    assert table["x"].type == pa.string()
    assert reader.notation["decimal"] == "."


@pytest.mark.parametrize(
    "text", ["x,n\n1.234,1\n12.000,2\n", "x;n\n1.234;1\n0.5;2\n", "x,n\n1234,1\n1.234,2\n", "x;n\n999;1.5\n1.234;2\n"]
)
def test_points_separate_decimals_where_nothing_says_otherwise(text):
    with opened(text) as reader:
        assert 1.234 in reader.read()["x"].to_pylist()


def test_the_decimal_sign_can_be_said():
    assert table_of("x;n\n1,234;1\n", decimal=",")["x"].to_pylist() == [1.234]
    assert table_of("x;n\n1,5;1\n", decimal=".")["x"].to_pylist() == ["1,5"]
    with pytest.raises(TableError, match="decimal sign"):
        table_of("x\n1\n", decimal=";")
    with pytest.raises(TableError, match=r"row 1, holds '1,5', which is not a number: pass --decimal ,"):
        list(open_chunks(io.BytesIO(b"x;n\n1,5;2\n"), columns={"x": pa.float64()}))
    with pytest.raises(TableError, match=r"row 1, holds '1\.5', which is not a number: pass --decimal \."):
        list(open_chunks(io.BytesIO(b"x;n\n1.5;2\n"), columns={"x": pa.float64()}, decimal=","))


@pytest.mark.parametrize("sign", [".", "/", "-"])
def test_local_dates_are_understood_by_a_day_beyond_the_12th(sign):
    text = f"d;n\n31{sign}12{sign}2024;1\n1{sign}2{sign}2024;2\n;3\n"
    with opened(text) as reader, pytest.warns(TableWarning, match="the day first"):
        table = reader.read()
    assert table["d"].to_pylist() == [datetime.date(2024, 12, 31), datetime.date(2024, 2, 1), None]
    assert reader.notation["dayfirst"] is True
    american = f"d;n\n12{sign}31{sign}2024;1\n2{sign}1{sign}2024;2\n"
    with pytest.warns(TableWarning, match="the month first"):
        assert table_of(american)["d"].to_pylist() == [datetime.date(2024, 12, 31), datetime.date(2024, 2, 1)]


@pytest.mark.parametrize(
    ("dates", "words"),
    [
        (["1.2.2024", "3.4.2024"], "may begin with the day or the month"),
        (["31.12.2024", "12.31.2024"], "with the month in others"),
    ],
)
def test_dates_that_are_not_sure_stay_text_and_are_said(dates, words):
    with pytest.warns(TableWarning, match=words):
        assert table_of("d;n\n" + "".join(f"{date};1\n" for date in dates))["d"].type == pa.string()


def test_the_order_of_dates_can_be_said_and_times_come_along():
    text = "d;n\n1.2.2024 3:04;1\n2.3.2024;2\n"
    with pytest.warns(TableWarning, match="the day first"):
        table = table_of(text, dayfirst=True)
    assert table["d"].to_pylist() == [datetime.datetime(2024, 2, 1, 3, 4), datetime.datetime(2024, 3, 2)]
    columns = {"d": pa.timestamp("us")}
    for dayfirst, day in ((True, (2024, 2, 1)), (False, (2024, 1, 2))):
        mixed = io.BytesIO(b"d;n\n1.2.2024;1\n2024-12-31;2\n;3\n")
        chunk = next(open_chunks(mixed, columns=columns, dayfirst=dayfirst))
        assert chunk["d"].to_pylist() == [datetime.datetime(*day), datetime.datetime(2024, 12, 31), None]
    for short in ("1.2", "1.2.24"):
        bad = io.BytesIO(f"d;n\n1.2.2024;1\n{short};2\n".encode())
        with pytest.raises(TableError, match=rf"column 'd', row 2, holds '{short}', which is not a date"):
            list(open_chunks(bad, columns=columns, dayfirst=True))


@pytest.mark.parametrize("date", ["31.02.2024", "30.2.2024 3:04", "31/04/2024", "29-02-2023", "45.1.2024"])
def test_a_date_that_does_not_exist_is_no_other_date(date):
    with pytest.warns(TableWarning, match=r"column 'd' holds dates that do not exist.*read as text"):
        table = table_of(f"d;n\n13.1.2024;0\n{date};1\n", dayfirst=True)
    assert table["d"].to_pylist() == ["13.1.2024", date]
    for dayfirst, swapped in ((True, date), (False, re.sub(r"^(\d+)(.)(\d+)", r"\3\2\1", date))):
        rows = io.BytesIO(f"d;n\n1.1.2024;0\n{swapped};1\n".encode())
        with pytest.raises(TableError, match=f"column 'd', row 2, holds '{re.escape(swapped)}', which is not a date"):
            list(open_chunks(rows, columns={"d": pa.timestamp("us")}, dayfirst=dayfirst))


def test_line_breaks_in_quotes_survive_the_end_of_a_block(monkeypatch):
    monkeypatch.setattr("demur.tabular.csv_files._BLOCK", 64)
    texts = [f"{'x' * length}\r\ny" for length in range(1, 40)]
    rows = "".join(f'"{text}",1\r\n' for text in texts)
    assert table_of(f"t,n\r\n{rows}")["t"].to_pylist() == texts


def test_a_schema_remembers_how_its_file_was_written():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TableWarning)
        with opened("x;d;y\n1,5;31.12.2024;a\n2,5;1.2.2024;b\n") as reader:
            learnt = Schema.learn(reader.read(), target="y")
    schema = Schema(learnt.columns, "y", notation=reader.notation)
    table = read_labelled(io.BytesIO(b"y;d;x\na;3.4.2024;7,5\n"), schema, ["a", "b"])
    assert table.to_pylist() == [{"y": "a", "d": datetime.datetime(2024, 4, 3), "x": 7.5}]
    again = read_labelled(io.BytesIO(b"y;d;x\na;3.4.2024;7.5\n"), schema, ["a", "b"], decimal=".", dayfirst=False)
    assert again.to_pylist() == [{"y": "a", "d": datetime.datetime(2024, 3, 4), "x": 7.5}]


numbers = st.floats(-1e6, 1e6).map(lambda number: f"{number:.3f}".replace(".", ","))


@given(st.lists(numbers, min_size=1, max_size=20))
def test_commas_are_taken_for_decimal_only_on_evidence(texts):
    decimal, _ = decimal_of({"x": pa.array(texts)})
    could_be_thousands = all(
        text.lstrip("-").split(",")[0].lstrip("0") and len(text.lstrip("-").split(",")[0]) < 4 for text in texts
    )
    assert decimal == ("." if could_be_thousands else ",")


@given(st.lists(st.dates(datetime.date(1900, 1, 1), datetime.date(2100, 1, 1)), min_size=1, max_size=20), st.booleans())
def test_the_order_is_never_guessed_wrong(dates, dayfirst):
    form = "%d.%m.%Y" if dayfirst else "%m.%d.%Y"
    order, _, remark = order_of_dates({"d": pa.array([date.strftime(form) for date in dates])})
    assert order in (dayfirst, None)
    assert (order is None) == all(date.day <= 12 for date in dates)
    assert remark


def test_a_date_without_its_time_zone_is_named_in_the_message():
    rows = io.BytesIO(b"d;n\n2024-01-01T10:00:00;1\n")
    with pytest.raises(TableError, match=r"holds '2024-01-01T10:00:00', which is not a date with a time zone"):
        list(open_chunks(rows, columns={"d": pa.timestamp("us", "UTC")}))


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("lines", [["1", "", "2"], ["", "1"], ["1", "", ""], ["1", '""', "2"]])
def test_an_empty_line_of_a_single_column_is_a_row(lines, end):
    wanted = [float(line) if line.isdigit() else None for line in lines]
    file = end.join(["x", *lines]).encode() + end.encode()
    assert read_table(io.BytesIO(file))["x"].to_pylist() == wanted
    assert next(open_chunks(io.BytesIO(file), columns={"x": pa.float64()}))["x"].to_pylist() == wanted
    if lines[-1]:
        assert read_table(io.BytesIO(file.rstrip())).num_rows == len(lines)


def test_empty_lines_in_a_file_of_labels_are_rows_but_not_at_its_end():
    labels = read_labels(io.BytesIO(b"y\ncat\n\ndog\n\n\n"), "pet", 3)
    assert labels["pet"].to_pylist() == ["cat", None, "dog"]
