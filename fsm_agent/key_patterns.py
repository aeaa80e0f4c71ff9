"""What looks like a key or the name of an account?"""

from __future__ import annotations

import re

# A word begins here, also behind an escape inside of JSON: "\\nsk-…".
_START = r"(?:(?<![A-Za-z0-9])|(?<=\\[bfnrt])|(?<=\\u[0-9a-fA-F]{4}))"
# What comes before something that must follow is bounded, so a search is linear.
KEY_LIKE = re.compile(
    _START + r"(?:(?:sk|gsk|csk|xai|pplx|hf|nvapi|tgp|fw|r8|ghp|github_pat)[-_][A-Za-z0-9_-]{12,}"
    r"|AIza[A-Za-z0-9_-]{20,}|ya29\.[A-Za-z0-9._-]{16,}|(?:AKIA|ASIA)[A-Z0-9]{16}"
    r"|eyJ[A-Za-z0-9_-]{10,500}\.[A-Za-z0-9._-]{10,}|[Bb]earer [A-Za-z0-9._~+/=-]{12,}"
    r"|(?:org|proj|acct)[-_](?=[A-Za-z]{0,40}[0-9])[A-Za-z0-9]{12,}|accounts/[0-9a-f]{32}|projects/[0-9]{6,})"
)
