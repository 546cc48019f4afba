"""Locks of files."""

import threading
import time

from demur.whole_file import locked


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
