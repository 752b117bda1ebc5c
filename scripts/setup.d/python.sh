# Python with PyTorch, for examples/ddp.py in the tests: one that is there, Debian's package, or an environment in the cache.

torch_env="$cache/python-torch"

# Whether Python $1 has PyTorch, without the seconds that importing it takes.
has_torch() { "$1" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("torch") is None)' >/dev/null 2>&1; }

python_with_torch() {
  local python
  for python in python3 /usr/bin/python3 "$torch_env/bin/python3"; do
    if have "$python" && has_torch "$python"; then command -v "$python"; return 0; fi
  done
  return 1
}

setup_python_torch() {
  have python3 || apt_install python3 || die "Python 3 is missing: install python3"
  python_with_torch >/dev/null || apt_install python3-torch || install_torch_env ||
    die "PyTorch is missing and cannot be installed: pip install torch (for the python3 on PATH)"
  python_with_torch >/dev/null || die "PyTorch was installed but python3 does not find it"
  say "pytorch: in $(python_with_torch)"
}

install_torch_env() {
  say "pip: PyTorch into $torch_env (minutes, once)"
  rm -rf "$torch_env"
  python3 -m venv "$torch_env" || return 1
  # On Linux the default wheel carries gigabytes of CUDA; the processor's own is a tenth.
  if [ "$(uname)" = Linux ]; then
    "$torch_env/bin/pip" install -q --retries 1 --timeout 30 --index-url https://download.pytorch.org/whl/cpu torch && return 0
  fi
  "$torch_env/bin/pip" install -q torch
}

python_environment() {
  local python
  ! python="$(python_with_torch)" || printf 'export HOLDFAST_TEST_PYTHON="%s"\n' "$python"
}
