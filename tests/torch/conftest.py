import pytest

from ranks import close_pools


@pytest.fixture(scope="session", autouse=True)
def pools_end_cleanly():
    """Ranks that served a whole session must leave in order."""
    yield
    close_pools()
