"""Groups: dependencies, invalid messages and what hangs on them, found again by plain reading."""

from tests.sim.workload.build import made, rows_of


def read_groups(files):
    """Return by node and group what each message is, what it depends on, when it was stored, and who holds it when."""
    groups = {}
    rows = rows_of(files, "message_stored", "message_changed", "message_held")
    for row in sorted(rows, key=lambda row: (row["ts"], row["seq"])):
        attrs = row["attrs"]
        group = groups.setdefault((row["node_id"], attrs["group_ref"]), ({}, {}, {}, []))
        states, above, stored, held = group
        message = attrs["message_ref"]
        if row["kind"] == "message_held":
            held.append((row["peer_ref"], message, row["ts"]))
            continue
        states[message] = (row["outcome"], row["reason"])
        if row["kind"] == "message_stored":
            refs = attrs.get("dependency_refs", "")
            above[message] = [refs[index : index + 32] for index in range(0, len(refs), 32)]
            stored[message] = row["ts"]
    return groups


def truth_of(made_):
    return {(group["node_id"], group["group_ref"]): group for group in made_.truth["bsp"]}


def test_states_and_graphs_are_what_the_truth_says():
    """Counts by state, missing dependencies, peers and convergence of every group come to the truth's numbers."""
    for scenarios, size in (((), {}), (("all",), {}), ((), {"nodes": 2, "days": 9, "events": 2_500})):
        workload = made(*scenarios, **size)
        groups, told = read_groups(workload.files), truth_of(workload)
        assert groups.keys() == told.keys()
        for key, (states, above, stored, held) in groups.items():
            group, words = told[key], [state for state, _ in states.values()]
            assert group["messages"] == len(states)
            for word in ("delivered", "waiting", "deleted"):
                assert group[word] == words.count(word)
            assert group["invalid_root"] == list(states.values()).count(("invalid", "invalid_in_context"))
            assert group["invalid_transitive"] == list(states.values()).count(("invalid", "invalid_dependency"))
            assert group["missing"] == len({each for refs in above.values() for each in refs} - above.keys())
            assert group["peers"] == len({peer for peer, _, _ in held})
            assert group["converge_us"] == max((ts - stored[message] for _, message, ts in held), default=None)
            needed = {each for refs in above.values() for each in refs}
            heads = [
                message for message, (state, _) in states.items() if state == "delivered" and message not in needed
            ]
            assert group["fork_width"] == len(heads)


def test_a_group_that_goes_on_misses_last_weeks_message():
    """Over the change of reference keys one group depends, at every node, on what nobody knows by that name."""
    workload = made(nodes=2, days=9, events=2_500)
    second = [group for group in workload.truth["bsp"] if group["week"] == 1]

    assert {group["node_id"] for group in second if group["missing"]} == {n["node_id"] for n in workload.truth["nodes"]}


def test_invalid_messages_have_their_root_and_distance():
    """Following dependencies upwards from an invalid message leads to its root in as many steps as the truth says."""
    workload = made("bsp_invalid_root")
    groups, found = read_groups(workload.files), 0
    for key, group in truth_of(workload).items():
        for entry in group["invalid"]:
            message, steps = entry["message_ref"], 0
            while message != entry["root_ref"]:
                (message,) = groups[key][1][message]
                steps += 1
            assert steps == entry["distance"]
            found += 1

    assert found == 4 * 2 * 13
