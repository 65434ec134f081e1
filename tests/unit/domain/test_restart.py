from app.domain.restart import EARLY_DEATH_DELAY_S, HALF_OPEN_FIRST_S, RestartBudget


def test_a_death_after_a_long_life_restarts_at_once() -> None:
    budget = RestartBudget(limit=3, window_s=60)
    budget.died(1000.0, lived_s=500)
    assert budget.wait_s(1000.0) == 0
    assert not budget.exhausted


def test_two_early_deaths_in_a_row_wait() -> None:
    budget = RestartBudget(limit=3, window_s=60)
    budget.died(10.0, lived_s=1)
    assert budget.wait_s(10.0) == 0
    budget.died(11.0, lived_s=1)
    assert budget.wait_s(11.0) == EARLY_DEATH_DELAY_S
    assert budget.wait_s(11.0 + EARLY_DEATH_DELAY_S) == 0


def test_deaths_outside_the_window_do_not_count() -> None:
    budget = RestartBudget(limit=3, window_s=60)
    for at in (0.0, 100.0, 200.0, 300.0):
        budget.died(at, lived_s=90)
    assert not budget.exhausted


def test_an_exhausted_budget_allows_half_open_tries_ever_more_rarely() -> None:
    budget = RestartBudget(limit=3, window_s=60)
    for at in (0.0, 1.0, 2.0):
        budget.died(at, lived_s=0.5)
    assert budget.exhausted
    assert budget.wait_s(2.0) == HALF_OPEN_FIRST_S
    budget.died(62.0, lived_s=0.5)
    assert budget.wait_s(62.0) == 2 * HALF_OPEN_FIRST_S
    for n in range(10):
        budget.died(100.0 + n, lived_s=0.5)
    assert budget.wait_s(109.0) == 1800


def test_a_ready_worker_or_an_administrator_closes_the_account() -> None:
    for close in (RestartBudget.ready, RestartBudget.reset):
        budget = RestartBudget(limit=1, window_s=60)
        budget.died(0.0, lived_s=0.5)
        assert budget.exhausted
        close(budget)
        assert not budget.exhausted
        assert budget.wait_s(0.0) == 0
