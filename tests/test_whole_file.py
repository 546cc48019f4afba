"""Locks of files, and folders that are replaced while others read them."""

import os
import threading
import time

from demur.whole_file import locked, move_into_place, recover


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


def test_a_folder_is_replaced_while_others_look_for_it(tmp_path):
    """A reader between the two renames puts the old folder back, and the new one still arrives."""
    path, ended, failed = tmp_path / "model", threading.Event(), []

    def read():
        while not ended.is_set():
            try:
                recover(path)
            except OSError as error:
                failed.append(error)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for number in range(100):
        new = tmp_path / "new"
        new.mkdir()
        (new / "file").write_text(str(number))
        move_into_place(new, path)
        assert (path / "file").read_text() == str(number)
    ended.set()
    for reader in readers:
        reader.join()
    assert not failed
    assert [one.name for one in tmp_path.iterdir()] == ["model"]


def test_two_processes_may_replace_a_folder_at_once(tmp_path):
    path, failed = tmp_path / "model", []

    def replace(name):
        for number in range(50):
            new = tmp_path / f"{name}{number}"
            new.mkdir()
            (new / "file").write_text(name)
            try:
                move_into_place(new, path)
            except OSError as error:
                failed.append(error)

    threads = [threading.Thread(target=replace, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert [one.name for one in tmp_path.iterdir()] == ["model"]


def test_what_killed_processes_left_behind_is_removed(tmp_path):
    path = tmp_path / "model"
    for name in (".model.0123456789ab.replaced", ".model.0123456789ac.part", ".model.0123456789ad.part", ".mine.part"):
        (tmp_path / name).mkdir()
    os.utime(tmp_path / ".model.0123456789ad.part", (0, 0))
    (tmp_path / "new").mkdir()
    move_into_place(tmp_path / "new", path)
    kept = [".mine.part", ".model.0123456789ac.part", "model"]  # the second one may still be written
    assert sorted(one.name for one in tmp_path.iterdir()) == kept
