"""Tables as people have them: workbooks, JSON lines, units, thousands separators, an index without a name."""

import io
import zipfile
from xml.sax.saxutils import escape

import pyarrow as pa
import pytest

from demur.columns import TableError, TableWarning
from demur.tabular import decide_file, fit_answers, fit_file, open_table, read_table

MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
DATE = 1
"""The style of a cell with a date."""


def workbook(rows, sheets=("Data",)):
    """Return a workbook; a cell is text, a number, or a pair of a number and a style."""

    def cell(value):
        if isinstance(value, str):
            return f'<c t="inlineStr"><is><t>{escape(value)}</t></is></c>' if value else "<c/>"
        number, style = value if isinstance(value, tuple) else (value, 0)
        return f'<c s="{style}"><v>{number}</v></c>'

    lines = "".join(f"<row>{''.join(map(cell, row))}</row>" for row in rows)
    sheet = f'<worksheet xmlns="{MAIN}"><sheetData>{lines}</sheetData></worksheet>'
    names = "".join(f'<sheet name="{name}" sheetId="{k}" r:id="s{k}"/>' for k, name in enumerate(sheets, 1))
    places = "".join(
        f'<Relationship Id="s{k}" Type="{RELATIONS}/worksheet" Target="worksheets/sheet{k}.xml"/>'
        for k in range(1, len(sheets) + 1)
    )
    packages = "http://schemas.openxmlformats.org/package/2006/relationships"
    files = {
        "[Content_Types].xml": '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"/>',
        "_rels/.rels": f'<Relationships xmlns="{packages}"><Relationship Id="b" Type="{RELATIONS}/officeDocument" '
        'Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{MAIN}" xmlns:r="{RELATIONS}"><sheets>{names}</sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{packages}">{places}'
        f'<Relationship Id="st" Type="{RELATIONS}/styles" Target="styles.xml"/></Relationships>',
        "xl/styles.xml": f'<styleSheet xmlns="{MAIN}"><cellXfs><xf numFmtId="0"/><xf numFmtId="14"/></cellXfs>'
        "</styleSheet>",
    } | {f"xl/worksheets/sheet{k}.xml": sheet for k in range(1, len(sheets) + 1)}
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, f'<?xml version="1.0"?>{text}')
    return data.getvalue()


def read(text, **options):
    with open_table(io.BytesIO(text.encode()), **options) as reader:
        return reader.read(), reader.notation["numbers"]


def test_the_first_sheet_of_a_workbook_is_a_table():
    pytest.importorskip("python_calamine")
    rows = [
        ["size", "born", "code", "price"],
        [1.5, (45292, DATE), "007", "7,5 EUR"],
        [2, (45293, DATE), "012", "8 EUR"],
    ]
    with pytest.warns(TableWarning) as caught:
        table = read_table(io.BytesIO(workbook(rows, ("Data", "Notes"))))
    assert table["size"].to_pylist() == [1.5, 2.0]
    assert [str(day) for day in table["born"].to_pylist()] == ["2024-01-01", "2024-01-02"]
    assert table["code"].to_pylist() == ["007", "012"]
    assert table["price"].to_pylist() == [7.5, 8.0]
    notes = " ".join(str(one.message) for one in caught)
    assert "2 sheets, of which the first is read, 'Data'" in notes
    assert "'7,5 EUR', read as a number" in notes
    with pytest.raises(TableError, match="cannot be read as a workbook"):
        read_table(io.BytesIO(workbook(rows)[:200]))


def test_empty_rows_of_a_workbook_are_left_out_as_empty_lines_are():
    pytest.importorskip("python_calamine")
    rows = [["size", "pet"], ["", ""], [1, "cat"], ["", ""], [2, ""]]
    assert read_table(io.BytesIO(workbook(rows))).to_pydict() == {"size": [1, 2], "pet": ["cat", None]}


def test_numbers_of_a_workbook_fit_a_model_of_a_file_with_decimal_commas():
    pytest.importorskip("python_calamine")
    with open_table(io.BytesIO(workbook([["size"], [1.5], [1200.25]])), decimal=",") as reader:
        assert next(reader.chunks({"size": pa.float64()})).to_pydict() == {"size": [1.5, 1200.25]}


def test_json_lines_are_a_table():
    table = read_table(io.BytesIO(b'{"size": 1, "pet": "cat"}\n{"size": 2.5, "pet": null}\n'))
    assert table.to_pydict() == {"size": [1.0, 2.5], "pet": ["cat", None]}
    with pytest.raises(TableError, match="JSON that is not one object per line"):
        read_table(io.BytesIO(b'[{"size": 1}]'))
    with pytest.raises(TableError, match="cannot be read"):
        read_table(io.BytesIO(b'{"size": 1\n'))
    for before in (b"\xef\xbb\xbf", b"\n"):
        with pytest.raises(TableError, match="JSON with something before the first object"):
            read_table(io.BytesIO(before + b'{"size": 1}\n'))


@pytest.mark.filterwarnings("ignore::demur.columns.TableWarning")
@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["1.234,50", "7,5"], [1234.5, 7.5]),
        (["211,1 EUR", "7 EUR", ""], [211.1, 7.0, None]),
        (["20,8 %", "7 %", "NA"], [20.8, 7.0, None]),
        (["169.5 cm", "170cm"], [169.5, 170.0]),
        (["1,234.5", "2,500"], [1234.5, 2500.0]),
        (["1,234,567", "2,500"], [1234567.0, 2500.0]),
        (["$1,234.50", "$7"], [1234.5, 7.0]),
        (["-1.234,50 €", "7 €"], [-1234.5, 7.0]),
        (["12.5 °C", "13 °C"], [12.5, 13.0]),
        (["12,5\u00a0%", "13\u00a0%"], [12.5, 13.0]),
        (["1 234", "22 500"], [1234.0, 22500.0]),
        (["EUR 12,50", "EUR 7,25"], [12.5, 7.25]),
        (["CHF 1'234.50", "CHF 7.00"], [1234.5, 7.0]),
        (["CHF 1\u2019234.50", "CHF 7.00"], [1234.5, 7.0]),
        (["-$5.50", "$7.25"], [-5.5, 7.25]),
        (["7.25", "(1,234.50)"], [7.25, -1234.5]),
        (["($5.50)", "$7.25"], [-5.5, 7.25]),
        (["\u22125.5", "7.5"], [-5.5, 7.5]),
    ],
)
def test_units_and_thousands_are_numbers(cells, values):
    table, numbers = read("x;y\n" + "".join(f"{cell};a\n" for cell in cells))
    assert table["x"].to_pylist() == values
    assert list(numbers) == ["x"]
    plain, _ = read("x;y\n" + "".join(f"{cell};a\n" for cell in cells), numbers={})
    assert pa.types.is_string(plain["x"].type) or cells == ["1.234,50", "7,5"]


@pytest.mark.filterwarnings("ignore::demur.columns.TableWarning")
@pytest.mark.parametrize(
    "cells",
    [
        *(["169.5 cm", "170"], ["169", "170 cm"], ["169 kg", "170 cm"], ["12 %", "35"], ["12a", "13a"]),
        *(["12-34", "12-35"], ["DE89 3704", "DE89 3705"], ["1.2.3", "1.2.4"], ["007 EUR", "012 EUR"]),
        *(["030 123", "040 456"], ["1.234 kg", "2.500 kg"], ["1,234", "2,500"], ["12:30 h", "12:45 h"]),
        *(["(1)", "(2)"], ["ABC 123", "ABC 124"], ["$5", "€7"], ["1.75 m", "169 cm"], ["(030) 12", "(040) 13"]),
    ],
)
def test_what_may_be_something_else_stays_text(cells):
    table, numbers = read("x;y\n" + "".join(f"{cell};a\n" for cell in cells))
    assert table["x"].to_pylist() == cells
    assert not numbers


@pytest.mark.parametrize("other", ["1,5", "1,5 EUR"])
def test_a_point_beside_decimal_commas_may_separate_thousands(other):
    with pytest.warns(TableWarning) as caught:
        table, _ = read(f"x;y\n1.234;{other}\n2.500;{other}\n")
    assert "'1.234' in column 'x' may be 1.234 or 1234, so it is read as text" in str(caught[-1].message)
    assert table["x"].to_pylist() == ["1.234", "2.500"]
    with pytest.warns(TableWarning):
        assert read(f"x;y\n1.234;{other}\n", decimal=",")[0]["x"].to_pylist() == [1234.0]
    with pytest.warns(TableWarning):
        assert read(f"x;y\n1.234;{other}\n2.50;{other}\n")[0]["x"].to_pylist() == [1.234, 2.5]


@pytest.mark.filterwarnings("ignore::demur.columns.TableWarning")
def test_a_model_reads_the_notation_that_it_was_fitted_on(tmp_path):
    rows = "".join(f"{k};{k % 7 * 1000 + 1000:,};{k % 7},5 cm;{'cat' if k % 7 < 3 else 'dog'}\n" for k in range(70))
    text = ";paid;size;pet\n" + rows.replace(",000", ".000,0")
    fitted = fit_file(io.BytesIO(text.encode()), "pet", model="lr")
    assert fitted.model.schema.names == ("paid", "size")
    assert "index" in fitted.model.schema.set_aside
    new, out = tmp_path / "new.csv", tmp_path / "out.csv"
    new.write_text("paid;size;seen\n1.000,0;0,5 cm;31.12.2024\n7000;6 cm;1.1.2025\n")
    from demur.tabular import DecideOptions

    decide_file(fitted.model, new, out, DecideOptions(keep=["seen", "paid"], strict=False))
    first, second = (line.split(";") for line in out.read_text().splitlines()[1:])
    assert first[:3] == ["31.12.2024", "1.000,0", "cat"]
    assert second[:3] == ["1.1.2025", "7000", "dog"]
    new.write_text("paid;size\n1.000,0;0,5 mm\n")
    with pytest.raises(TableError, match=r"column 'size', row 1, holds '0,5 mm', which is not a number: write it as"):
        decide_file(fitted.model, new, tmp_path / "other.csv")


def test_a_note_shows_an_unusual_sign():
    with pytest.warns(TableWarning, match=r"column 'x' holds '\(5\)', read as a number"):
        assert read("x;y\n7;a\n(5);a\n")[0]["x"].to_pylist() == [7.0, -5.0]


def test_long_codes_are_text_because_numbers_would_round_them():
    codes = ["12345678901234567890", "12345678901234567891"]
    with pytest.warns(TableWarning, match="holds codes such as '12345678901234567890'"):
        assert read("x;y\n" + "".join(f"{code};a\n" for code in codes))[0]["x"].to_pylist() == codes


@pytest.mark.filterwarnings("ignore::demur.columns.TableWarning")
def test_labels_and_answers_with_a_unit_stay_as_they_are_written():
    rows = "".join(f"{k % 50},{'250 ml' if k % 50 < 25 else '500 ml'},{40 + k % 50} %\n" for k in range(200))
    fitted = fit_file(io.BytesIO(b"size,bottle,sure\n" + rows.encode()), "bottle", model="lr", drop=["sure"])
    new = pa.table({"size": [3.0, 47.0]})
    assert fitted.model.answers(new)["prediction"].to_pylist() == ["250 ml", "500 ml"]
    said = "".join(f"{k % 2}0 %,{k % 2 if k % 9 else 1}0 %,{40 + k % 50} %\n" for k in range(200))
    told = fit_answers(io.BytesIO(b"y,says,sure\n" + said.encode()), "y", answer="says", confidence="sure")
    assert told.model.classes.tolist() == ["00 %", "10 %"]
    assert told.model.answers(pa.table({"says": ["00 %"], "sure": [80.0]}))["first_choice"].to_pylist() == ["00 %"]
