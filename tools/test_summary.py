#!/usr/bin/env python3
"""Prints how many test cases ran: ctest's own and those inside the lit suite. Exit 1 if any failed or none ran."""

import re
import sys
import xml.etree.ElementTree as xml


def main():
    folder = sys.argv[1]
    try:
        suite = xml.parse(f"{folder}/tests.xml").getroot()
    except (OSError, xml.ParseError) as error:
        sys.exit(f"no test report: {error}")
    passed = failed = skipped = 0
    lit = {"Passed": 0, "Failed": 0, "Unsupported": 0, "Expectedly Failed": 0, "Unresolved": 0, "Timed Out": 0}
    pytest = {"passed": 0, "failed": 0, "skipped": 0, "errors": 0}
    for case in suite.iter("testcase"):
        status = case.get("status")
        if status == "run":
            passed += 1
        elif status in ("notrun", "disabled"):
            skipped += 1
            print(f"skipped: {case.get('name')}")
        else:
            failed += 1
            print(f"FAILED: {case.get('name')}")
        output = case.findtext("system-out") or ""
        for name, count in re.findall(r"^\s*([A-Z][A-Za-z ]+?)\s*:\s+(\d+) \(\d+\.\d+%\)$", output, re.M):
            if name in lit:
                lit[name] += int(count)
        for count, name in re.findall(r"(\d+) (passed|failed|skipped|errors?)\b(?=.* in [\d.]+s)", output):
            pytest["errors" if name == "error" else name] += int(count)
    print("lit: " + ", ".join(f"{count} {name.lower()}" for name, count in lit.items() if count or name == "Passed"))
    print("pytest: " + ", ".join(f"{count} {name}" for name, count in pytest.items() if count or name == "passed"))
    print(f"ctest: {passed} passed, {failed} failed, {skipped} skipped")
    lit_failed = lit["Failed"] + lit["Unresolved"] + lit["Timed Out"]
    total_failed = failed + (lit_failed + pytest["failed"] + pytest["errors"] if failed else 0)
    total_passed = passed + lit["Passed"] + pytest["passed"]
    total_skipped = skipped + lit["Unsupported"] + pytest["skipped"]
    print(f"{total_passed} passed, {total_failed} failed, {total_skipped} skipped")
    return 1 if failed or passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
