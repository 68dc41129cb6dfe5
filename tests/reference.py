"""A server's decisions once more, for one parameter, in plain Python: what `tests/test_state_machine.py` compares with.

It is the shard of examples/nano.py, extended by backup workers, SSP, absences, sessions and saved runs. A request is a
generator, which yields a condition whenever it has to wait.
"""

from math import inf, isfinite
from types import SimpleNamespace

LR, MOMENTUM, SILENCE_S, REJOIN_S, SOON_S = 0.5, 0.5, 8.0, 3.0, 0.5
FRESH = "fresh"  # the secret of a session to which the server gives one


class Reference:
    """Workers, of which ``quorum`` complete a round; None: no rounds, and pulls at most ``staleness`` clocks ahead.

    The run ends after ``updates`` pushes, and pauses after every ``every``. Times are seconds.
    """

    def __init__(self, workers, quorum, staleness, updates, every, secrets):
        self.workers, self.quorum, self.staleness = range(workers), quorum, staleness
        self.updates, self.every, self.secrets = updates, every, secrets or [""] * workers
        self.now, self.p, self.v, self.version, self.applied, self.made, self.rounds = 0.0, 1.0, 0.0, 0, 0, 0, 0
        self.losses, self.recent = [], []
        self.begin([0] * workers)

    def begin(self, clocks):
        """Count all workers, at these clocks, and know none of them."""
        self.clocks, self.live, self.held = clocks, {*self.workers}, {}
        self.late, self.duplicates, self.over = 0, 0, [0 for _ in self.workers]
        self.stale = {}
        self.missed, self.dropped = [[set() for _ in self.workers] for _ in range(2)]
        self.pushing = [False for _ in self.workers]
        self.end, self.paused, self.pause_at = "", False, self.every
        self.looked, self.members = self.now, []
        for secret in self.secrets:
            fields = {"state": "new", "links": set(), "lost_at": None, "heard": self.now, "busy": 0}
            self.members.append(SimpleNamespace(secret=secret, **fields))

    # The shard

    @property
    def counted(self):
        return self.applied if self.quorum is None else self.rounds * len(self.workers)

    def slowest(self):
        if self.quorum is not None:
            return self.rounds
        return min((self.clocks[worker] for worker in self.live), default=max(self.clocks))

    def may_push(self, clock):
        return bool(self.end) or (not self.paused and (self.quorum is None or clock <= self.rounds))

    def may_pull(self, worker):
        if self.end or (self.paused and self.quorum is not None):
            return bool(self.end)
        return self.clocks[worker] - self.slowest() <= self.staleness

    def is_new(self, worker, clock):
        if clock > self.clocks[worker]:
            if self.end:  # no journal has the pushes between
                return True
            raise ValueError("pushes are missing between")
        return clock == self.clocks[worker] or clock in self.missed[worker]

    def push(self, worker, clock, version, gradient, loss):
        self.join(worker)
        if self.end:
            outcome = "over"
        elif self.quorum is None:
            outcome = self.update([(clock, version, gradient, loss)])
        elif clock < self.rounds:
            outcome, self.late = "late", self.late + 1
            self.dropped[worker].add(clock)
        else:
            self.held[worker] = clock, version, gradient, loss
            outcome = self.update_round() or "held"
            if outcome == "over":
                del self.held[worker]
        if outcome == "over":
            self.over[worker] += max(clock + 1 - self.clocks[worker], 0)
        if clock in self.missed[worker]:
            self.missed[worker] = {c for c in self.missed[worker] if c > clock}
        self.clocks[worker] = max(self.clocks[worker], clock + 1, self.rounds if outcome == "late" else 0)
        return outcome

    def update_round(self):
        if self.held and not self.end and (len(self.held) >= self.quorum or self.live <= self.held.keys()):
            return self.update([self.held[worker] for worker in sorted(self.held)])
        return None

    def update(self, pushes):
        g = sum(gradient for _, _, gradient, _ in pushes) / len(pushes)
        self.v = MOMENTUM * self.v + (g if self.quorum else g * (1 / len(self.workers)))
        p = self.p - LR * self.v
        if not isfinite(p):
            self.end = "diverged"
            return "over"
        for _, version, _, loss in pushes:
            self.stale[self.version - version] = self.stale.get(self.version - version, 0) + 1
            self.recent.append(loss)
        lacking = max(self.quorum - len(pushes), 0) if self.quorum else 0
        self.recent += [sum(self.recent[-len(pushes) :]) / len(pushes)] * lacking
        self.p, self.version, self.held = p, self.version + 1, {}
        self.applied, self.made = self.applied + len(pushes), self.made + len(pushes) + lacking
        self.rounds += self.quorum is not None
        self.end = self.end or ("over" if self.made >= self.updates else "")
        self.paused = not self.end and self.counted >= self.pause_at
        while len(self.recent) >= len(self.workers):
            mine, self.recent = self.recent[: len(self.workers)], self.recent[len(self.workers) :]
            self.losses.append((self.made // len(self.workers), sum(mine) / len(mine)))
        return "applied"

    def join(self, worker):
        if worker not in self.live:
            at = self.clocks[worker]
            kept = self.missed[worker] if at - 1 in self.missed[worker] else set()
            self.clocks[worker] = max(at, self.slowest())
            self.missed[worker] = kept | {*range(at, self.clocks[worker])}
            self.live.add(worker)

    def leave(self, worker):
        self.live.discard(worker)
        if self.quorum is not None:
            self.update_round()

    def pause(self):
        soon = (self.counted // len(self.workers) + 1) * len(self.workers)
        self.pause_at = min(self.pause_at, soon)

    def go_on(self):
        self.pause_at = (self.counted // self.every + 1) * self.every
        self.paused = not self.end and self.counted >= self.pause_at

    def finish(self, how):
        self.end, self.paused = self.end or how, False

    # The sessions

    def held_by_another(self, worker):
        member = self.members[worker]
        if member.lost_at is not None:
            return self.now - member.lost_at < REJOIN_S
        return member.state == "present" or (member.state == "new" and member.secret != "")

    def taken(self, worker):
        return bool(self.members[worker].links) or self.held_by_another(worker)

    def is_own(self, worker, link, secret):
        member = self.members[worker]
        return link in member.links if secret is None else secret == member.secret

    def soon(self, link, worker, secret):
        ranks = self.workers if worker == -1 else [worker]
        if any(self.is_own(rank, link, secret) or not self.taken(rank) for rank in ranks):
            return False
        lost = [self.members[rank].lost_at for rank in ranks]
        return any(at is not None and at + REJOIN_S <= self.now + SOON_S for at in lost)

    def admit(self, link, worker, secret, again):
        if worker == -1:
            ranks = sorted(self.workers, key=lambda rank: self.members[rank].state == "lost")
            own = [rank for rank in ranks if self.is_own(rank, link, secret)]
            free = own + [rank for rank in ranks if not self.taken(rank)]
            if not free:
                raise ValueError("workers are connected already")
            worker = free[0]
        if any(link in self.members[rank].links for rank in self.workers if rank != worker):
            raise ValueError("Say hello as worker")
        member = self.members[worker]
        if not self.is_own(worker, link, secret):
            if self.held_by_another(worker):
                raise ValueError("is held by another session")
            member.links, member.secret = set(), secret or FRESH
        elif again and member.state == "parted":
            raise ValueError("has said goodbye")
        member.links.add(link)
        member.state, member.lost_at = "present", None
        return worker

    def answer(self, kind, link, worker, clock=0, version=0, gradient=0.0, loss=None, secret=None, again=False):
        """Answer a request. Returns clock, done, outcome, version and, for a pull, the parameter."""
        if kind == "hello":
            try:
                while self.soon(link, worker, secret):
                    yield lambda: not self.soon(link, worker, secret)
            except TimeoutError:
                pass
            worker = self.admit(link, worker, secret, again)
        member, outcome = self.members[worker], None
        if link not in member.links:
            raise ValueError("say hello first")
        member.heard, member.busy = self.now, member.busy + 1
        try:
            if kind == "hello":
                self.join(worker)
            if "push" in kind:
                outcome = yield from self.answer_push(worker, clock, version, gradient, loss)
            if "pull" in kind and not self.may_pull(worker):
                try:
                    yield lambda: self.may_pull(worker)
                except TimeoutError:
                    raise TimeoutError(f"with the outcome {outcome!r}" if outcome else "") from None
            if kind == "bye":
                member.state = "parted"
                self.leave(worker)
            return self.clocks[worker], bool(self.end), outcome, self.version, self.p if "pull" in kind else None
        finally:
            member.heard, member.busy = self.now, member.busy - 1
            if member.state == "parted":
                member.links = set()

    def answer_push(self, worker, clock, version, gradient, loss):
        member, secret = self.members[worker], self.members[worker].secret
        if version > self.version:
            raise ValueError("the newest is")
        if self.pushing[worker]:
            yield lambda: not self.pushing[worker]
        if not self.is_new(worker, clock):
            self.duplicates += 1
            return "late" if clock in self.dropped[worker] else "duplicate"
        self.pushing[worker] = True
        try:
            if not self.may_push(clock):
                yield lambda: self.may_push(clock)
                if member.secret != secret:
                    raise ValueError("Another session has become")
            if not isfinite(gradient):
                raise ValueError("NaN or infinity")
            if worker not in self.live:
                if member.state not in ("present", "silent"):
                    raise ValueError("has left while this push")
                member.state = "present"
            return self.push(worker, clock, version, gradient, loss)
        finally:
            self.pushing[worker] = False

    def break_off(self, link):
        """A connection breaks. Returns its worker if that is lost now."""
        for worker, member in enumerate(self.members):
            if link in member.links:
                member.links.discard(link)
                if not member.links:
                    member.state, member.lost_at = "lost", self.now
                    return worker
        return None

    def look(self):
        """The workers that are silent now. A look that is late does not blame the workers."""
        late, self.looked, silent = self.now - self.looked - SILENCE_S / 4, self.now, []
        for worker, member in enumerate(self.members):
            member.heard = self.now if late > SILENCE_S / 4 else min(member.heard + max(late, 0), self.now)
            if member.state == "present" and not member.busy and self.now - member.heard > SILENCE_S:
                member.state = "silent"
                silent.append(worker)
        return silent

    # What a server that starts again has

    def crash(self, duplicates):
        """The server is killed, and starts again from its journal; repeated pushes since the snapshot are forgotten."""
        self.duplicates, self.pushing, self.looked = duplicates, [False for _ in self.workers], self.now
        for member in self.members:
            member.links, member.busy, member.heard = set(), 0, self.now
            if member.state != "new":
                member.state, member.lost_at = "lost", self.now

    def resume(self, quorum, staleness):
        """Another run, perhaps by another rule, begins with this one's saved state."""
        held = [(worker, *self.held[worker]) for worker in self.held]
        clocks = [at - self.over[worker] - (worker in self.held) for worker, at in enumerate(self.clocks)]
        self.quorum, self.staleness = quorum, staleness
        if quorum is not None:
            self.rounds = max(self.rounds, self.made // len(self.workers))
            clocks = [self.rounds for _ in self.workers]
        self.begin(clocks)
        if self.made >= self.updates:
            self.finish("over")
        for push in held:
            self.push(*push)
        if self.every < inf:
            self.go_on()
