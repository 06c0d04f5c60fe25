"""Profiles as data files: complete, sourced, read back as written, and refused with the file, line and field."""

import pickle
import tomllib
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import ProfileError
from advisor.machine import DeviceProfile, Source, load_profile, profile_for_cc, profile_names, write_profile
from advisor.machine.features import compute_capability
from advisor.machine.profile_file import (
    EVIDENCE_KINDS,
    FIELDS,
    PROFILE_FOLDER,
    is_path,
    nearest_for_cc,
    numeric_keys,
    parse_profile,
)

GOOD = write_profile(load_profile("h200"))


def refusal(text: str) -> ProfileError:
    with pytest.raises(ProfileError) as caught:
        parse_profile(text, "mine.toml")
    return caught.value


def changed(old: str, new: str) -> str:
    assert GOOD.count(old) == 1, f"{old!r} occurs {GOOD.count(old)} times"
    return GOOD.replace(old, new)


# --- what ships ---------------------------------------------------------------------------------------------------


def test_the_shipped_profiles_are_the_six_of_the_design():
    assert profile_names() == ["b200", "b300", "gb200", "h100", "h200", "rtx_pro_6000"]


@pytest.mark.parametrize("name", profile_names())
def test_every_number_of_a_shipped_profile_states_its_source(name):
    document = tomllib.loads((PROFILE_FOLDER / f"{name}.toml").read_text())
    numbers = {key for key, value in document.items() if not isinstance(value, (str, dict))}
    numbers |= {f"{table}.{key}" for table, rows in document.items() if isinstance(rows, dict) for key in rows}
    numbers -= {each for each in numbers if each.startswith("sources.")}
    assert numbers == set(document["sources"])
    assert numbers == set(numeric_keys(load_profile(name)))
    for source in document["sources"].values():
        assert source["kind"] in EVIDENCE_KINDS
        assert len(source["text"]) > 10


@pytest.mark.parametrize("name", profile_names())
def test_a_shipped_profile_is_consistent_with_its_architecture(name):
    profile = load_profile(name)
    assert profile.name == name
    assert sum(profile.sm_groups) == profile.sms
    assert compute_capability(profile.arch) == profile.compute_capability
    assert (profile.tmem_columns > 0) == (profile.compute_capability[0] == 10)
    assert (profile.clc_round_trip_cycles > 0) == (profile.compute_capability[0] >= 10)
    assert profile.has_clusters


def test_only_measured_or_queried_numbers_of_the_h200_claim_a_device():
    for name in profile_names():
        kinds = {source.kind for source in load_profile(name).sources.values()}
        assert ("measured" in kinds or "queried" in kinds) == (name == "h200")


def test_the_grouping_of_the_rtx_pro_6000_is_marked_assumed():
    assert load_profile("rtx_pro_6000").sources["sm_groups"].kind == "assumed"


@pytest.mark.parametrize(
    ("name", "published_tflops", "room"),
    # On Hopper the clock was measured under MMAs alone; feeding them from memory lowers it. On the B200 it comes from a
    # library's throughput.
    [("h200", 729, 1.25), ("b200", 1610, 1.1), ("h100", 729, 1.25)],
)
def test_the_sustained_clock_leaves_room_above_the_library_but_not_much(name, published_tflops, room):
    profile = load_profile(name)
    peak = profile.sms * profile.tensor_flop_per_clk_per_sm["bf16"] * profile.clock_hz / 1e12
    assert 1.0 < peak / published_tflops < room


# --- by name, by file, by device ----------------------------------------------------------------------------------


@pytest.mark.parametrize("spelling", ["rtx_pro_6000", "RTX PRO 6000", "rtx-pro-6000", " Rtx_Pro_6000 "])
def test_a_name_is_found_however_it_is_spelled(spelling):
    assert load_profile(spelling).name == "rtx_pro_6000"


@pytest.mark.parametrize(
    ("asked", "hint"), [("b20", "did you mean b200"), ("h800", "did you mean h200"), ("x", "known")]
)
def test_an_unknown_name_lists_the_known_ones_and_suggests_the_nearest(asked, hint):
    with pytest.raises(ProfileError) as caught:
        load_profile(asked)
    assert caught.value.code == "UNKNOWN_TARGET"
    assert hint in str(caught.value)
    for name in profile_names():
        assert name in caught.value.fix


@pytest.mark.parametrize(
    ("value", "expected"), [("b200", False), ("mine.toml", True), ("dir/b200", True), ("./b200", True), ("auto", False)]
)
def test_a_value_with_a_separator_or_the_ending_is_a_path(value, expected):
    assert is_path(value) is expected


def test_a_file_is_read_and_changed_numbers_arrive(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(changed("launch_us = 0.53", "launch_us = 3"))
    assert load_profile(str(path)).launch_us == 3.0


@pytest.mark.parametrize(
    "make", [lambda path: None, lambda path: path.mkdir(), lambda path: path.write_bytes(b"\xff\xfe")]
)
def test_an_unreadable_file_is_an_input_error_that_names_it(tmp_path, make):
    path = tmp_path / "mine.toml"
    make(path)
    with pytest.raises(ProfileError) as caught:
        load_profile(str(path))
    assert caught.value.code == "PROFILE_UNREADABLE"
    assert str(path) in str(caught.value)
    assert caught.value.exit_status == 2


@pytest.mark.parametrize(
    ("cc", "device", "expected"),
    [
        ((9, 0), "NVIDIA H200", "h200"),
        ((9, 0), "NVIDIA H100 80GB HBM3", "h100"),
        ((9, 0), "NVIDIA GH200 480GB", None),
        ((9, 0), "NVIDIA H20", None),
        ((10, 0), "NVIDIA B200", "b200"),
        ((10, 0), "NVIDIA GB200", "gb200"),
        ((10, 3), "NVIDIA B300 SXM6 AC", "b300"),
        ((10, 3), "NVIDIA B200", None),
        ((12, 0), "NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx_pro_6000"),
        ((12, 0), "NVIDIA GeForce RTX 5090", None),
    ],
)
def test_a_device_finds_its_own_profile_or_none(cc, device, expected):
    found = profile_for_cc(*cc, device)
    assert (found and found.name) == expected


def test_rates_to_start_from_exist_for_a_known_compute_capability_only():
    assert nearest_for_cc(9, 0).compute_capability == (9, 0)
    assert nearest_for_cc(8, 0) is None


# --- writing ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", profile_names())
def test_a_written_profile_reads_back_equal(name):
    profile = load_profile(name)
    assert parse_profile(write_profile(profile), "copy.toml") == profile
    assert write_profile(parse_profile(write_profile(profile), "copy.toml")) == write_profile(profile)


@given(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip),
    st.floats(1e-6, 1e18),
    st.integers(1, 2**40),
)
def test_any_text_and_any_number_survive_the_round_trip(text, rate, count):
    profile = load_profile("b200")
    sources = {**profile.sources, "launch_us": Source("measured", text)}
    odd = replace(profile, dram_bytes_per_s=rate, l2_bytes=count, sources=sources)
    assert parse_profile(write_profile(odd), "copy.toml") == odd


def test_a_profile_travels_to_a_child_process():
    profile = load_profile("b200")
    assert pickle.loads(pickle.dumps(profile)) == profile


def test_a_number_without_a_source_is_the_users_own():
    start = GOOD.index("[sources]")
    bare = parse_profile(GOOD[:start], "folder/mine.toml")
    assert set(bare.sources) == set(numeric_keys(bare))
    assert {source.kind for source in bare.sources.values()} == {"user"}
    assert "mine.toml" in bare.sources["sms"].text


def test_one_source_can_speak_for_a_whole_table():
    start = GOOD.index("[sources]")
    text = GOOD[:start] + '[sources]\ntensor_flop_per_clk_per_sm = { kind = "measured", text = "a probe of mine" }\n'
    profile = parse_profile(text, "mine.toml")
    assert profile.sources["tensor_flop_per_clk_per_sm.tf32"] == Source("measured", "a probe of mine")
    assert profile.sources["sms"].kind == "user"


# --- refusals -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["a = " + "[" * 3000 + "]" * 3000, "sms = " + "9" * 5000], ids=["nested", "thousands of digits"]
)
def test_what_the_toml_reader_cannot_take_is_a_refusal(text):
    assert refusal(text).code == "PROFILE_SYNTAX"


@pytest.mark.parametrize(("field", "value"), [("sms", 10**16), ("launch_us", 1e300), ("max_clock_hz", 1e-300)])
def test_a_number_that_no_gpu_has_is_refused_with_the_range(field, value):
    error = refusal(write_profile(replace(load_profile("h200"), **{field: value})))
    assert error.code == "PROFILE_VALUE"
    assert error.where.field == field
    assert "at most" in error.message or "from" in error.message


def test_a_file_without_an_end_is_not_read_to_it():
    with pytest.raises(ProfileError, match="more than 1048576 bytes"):
        load_profile("/dev/zero")


def test_a_byte_order_mark_is_no_part_of_a_profile(tmp_path):
    path = tmp_path / "marked.toml"
    path.write_text("\ufeff" + GOOD)
    assert load_profile(str(path)) == parse_profile(GOOD, str(path))


def test_a_syntax_error_names_the_line():
    error = refusal(changed("sms = 132", "sms = = 132"))
    assert error.code == "PROFILE_SYNTAX"
    assert error.where.line == GOOD[: GOOD.index("sms = 132")].count("\n") + 1


@pytest.mark.parametrize(
    ("old", "new", "field", "suggestion"),
    [
        ("sms = 132", "sms = 132\nlaunch_ns = 5", "launch_ns", "launch_us"),
        ("bf16 = 4096.0", "bf16 = 4096.0\nfp61 = 1", "tensor_flop_per_clk_per_sm.fp61", "fp16"),
        ("[sources]", '[sources]\nsmss = { kind = "user", text = "x" }', "sources.smss", "sms"),
    ],
)
def test_an_unknown_key_is_refused_with_its_line_and_the_nearest_key(old, new, field, suggestion):
    error = refusal(changed(old, new))
    assert error.code == "PROFILE_UNKNOWN_KEY"
    assert error.where.field == field
    assert error.where.line is not None
    assert suggestion in error.fix


def test_an_unknown_key_with_nothing_near_lists_the_keys():
    error = refusal(changed("sms = 132", "sms = 132\nqqqq = 1"))
    assert "smem_per_sm_bytes" in error.fix


@pytest.mark.parametrize("name", [each.name for each in fields(DeviceProfile) if each.name != "sources"])
def test_a_missing_key_is_named(name):
    lines = GOOD.splitlines()
    if f"[{name}]" in lines:
        start = lines.index(f"[{name}]")
        end = next(number for number in range(start + 1, len(lines)) if not lines[number])
    else:
        start = next(number for number, line in enumerate(lines) if line.startswith(f"{name} = "))
        end = start + 1
    error = refusal("\n".join(lines[:start] + lines[end:]))
    assert error.code == "PROFILE_MISSING_KEY"
    assert error.where.field == name
    assert name in error.message


def test_a_missing_tensor_rate_is_named():
    error = refusal(changed("tf32 = 2048.0\n", ""))
    assert (error.code, error.where.field) == ("PROFILE_MISSING_KEY", "tensor_flop_per_clk_per_sm.tf32")


@pytest.mark.parametrize(
    ("old", "new", "field", "word"),
    [
        ('name = "h200"', "name = 7", "name", "string"),
        ('name = "h200"', 'name = "H 200"', "name", "lower-case"),
        ('title = "NVIDIA H200"', 'title = ""', "title", "non-empty"),
        ('arch = "sm_90a"', 'arch = "sm_100a"', "arch", "sm_90a"),
        ('arch = "sm_90a"', 'arch = "ampere"', "arch", "sm_90"),
        ("compute_capability = [9, 0]", "compute_capability = [9]", "compute_capability", "two integers"),
        ("compute_capability = [9, 0]", "compute_capability = 9.0", "compute_capability", "list"),
        ("compute_capability = [9, 0]", "compute_capability = [7, 0]", "arch", "none known"),
        ("sms = 132", "sms = 131", "sm_groups", "add up to sms = 131"),
        ("sms = 132", "sms = 0", "sms", "at least 1"),
        ("sms = 132", "sms = 132.0", "sms", "integer"),
        ("sms = 132", "sms = true", "sms", "integer"),
        ("[18, 18, 16,", "[18, 16, 18,", "sm_groups", "largest first"),
        ("8, 2, 2, 2, 2]", "8, 2, 2, 4, 0]", "sm_groups", "largest first"),
        ("8, 2, 2, 2, 2]", '8, 2, 2, 2, "2"]', "sm_groups", "integers"),
        ("smem_per_block_bytes = 232448", "smem_per_block_bytes = 233472", "smem_per_block_bytes", "must fit"),
        ("max_portable_cluster_size = 8", "max_portable_cluster_size = 32", "max_portable_cluster_size", "not exceed"),
        ("tmem_columns = 0", "tmem_columns = -1", "tmem_columns", "at least 0"),
        ("launch_us = 0.53", "launch_us = 0", "launch_us", "positive"),
        ("launch_us = 0.53", "launch_us = -0.53", "launch_us", "positive"),
        ("launch_us = 0.53", "launch_us = nan", "launch_us", "positive"),
        ("launch_us = 0.53", "launch_us = inf", "launch_us", "positive"),
        ("launch_us = 0.53", 'launch_us = "0.53"', "launch_us", "number"),
        ("launch_us = 0.53", "launch_us = true", "launch_us", "number"),
        ("clc_round_trip_cycles = 0.0", "clc_round_trip_cycles = -1", "clc_round_trip_cycles", "non-negative"),
        ("\nclock_hz = 1640000000.0", "\nclock_hz = 2e9", "clock_hz", "max_clock_hz"),
        ("bf16 = 4096.0", "bf16 = 0", "tensor_flop_per_clk_per_sm.bf16", "positive"),
    ],
)
def test_a_value_outside_its_rule_names_file_line_field_value_and_rule(old, new, field, word):
    error = refusal(changed(old, new))
    assert error.code == "PROFILE_VALUE"
    assert error.where.path == "mine.toml"
    assert error.where.field == field
    assert error.where.line is not None
    assert word in error.message
    assert error.exit_status == 2


@pytest.mark.parametrize(
    ("entry", "word"),
    [
        ('"measured"', "kind"),
        ('{ kind = "guessed", text = "x" }', "must be one of user"),
        ('{ kind = "user", text = " " }', "where the number comes from"),
        ('{ kind = "user" }', "must be"),
        ('{ kind = "user", text = "x", page = 4 }', "must be"),
    ],
)
def test_a_source_that_says_nothing_is_refused(entry, word):
    start = GOOD.index("[sources]")
    error = refusal(GOOD[:start] + f"[sources]\nsms = {entry}\n")
    assert (error.code, error.where.field) == ("PROFILE_VALUE", "sources.sms")
    assert word in error.message


@pytest.mark.parametrize("table", ["tensor_flop_per_clk_per_sm", "mma_sync_flop_per_clk_per_sm", "sources"])
def test_a_table_that_is_a_number_is_refused(table):
    start = GOOD.index("[tensor_flop_per_clk_per_sm]")
    tables = {
        name: GOOD[GOOD.index(f"[{name}]") :].split("\n\n")[0]
        for name in ("tensor_flop_per_clk_per_sm", "mma_sync_flop_per_clk_per_sm")
        if name != table
    }
    error = refusal(GOOD[:start] + f"{table} = 4\n" + "\n".join(tables.values()))
    assert (error.code, error.where.field) == ("PROFILE_VALUE", table)


def test_the_fields_of_the_file_are_those_of_the_profile():
    assert set(FIELDS) == {each.name for each in fields(DeviceProfile)}
