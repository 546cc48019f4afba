"""Files that are complete or absent: what killed processes leave behind, and locks."""

import os
import threading
import time

from demur.whole_file import locked, part_of, write_whole


def test_unfinished_files_of_killed_processes_are_removed_after_a_day(tmp_path):
    target = tmp_path / "table.csv"
    old, recent, other = part_of(target), part_of(target), part_of(tmp_path / "other.csv")
    folder = part_of(target)
    for part in (old, recent, other):
        part.write_text("half a row")
    folder.mkdir()
    (folder / "model.json").write_text("{")
    for part in (old, other, folder):
        os.utime(part, (time.time() - 90_000,) * 2)
    write_whole(target, "a,b\n")
    assert sorted(tmp_path.iterdir()) == sorted([target, recent, other])


def test_a_lock_is_held_by_one_at_a_time(tmp_path):
    inside, most = [], []

    def hold():
        with locked(tmp_path / "state.json"):
            inside.append(1)
            most.append(len(inside))
            time.sleep(0.01)
            inside.pop()

    threads = [threading.Thread(target=hold) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 5
