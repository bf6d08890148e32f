#!/usr/bin/env bash
# Builds kube-apiserver 1.20.2 from Debian's source package, which has all of its modules in it, and takes etcd from
# Debian's packages. Nothing is installed and no configuration of the machine is changed: packages are unpacked into a
# folder that goes away again (2.6 GB while it builds), apt's lists lie there, too. What is kept, 150 MB, lies outside the repository; its
# path is printed. Asks only the mirrors of Debian that this machine's apt is configured with.
#
#   build.sh            build where it is missing, print the folder
#   build.sh --where    print the folder, build nothing; fails where it is missing
set -euo pipefail
export LC_ALL=C

version=1.20.2
suite=bookworm # the last one whose source package is the whole tree
kept=${KVINDEXER_KUBE_APISERVER:-${XDG_CACHE_HOME:-$HOME/.cache}/kvindexer/kube-apiserver-$version}
programs=(kube-apiserver etcd etcdctl)

say() { echo "kube-apiserver: $*" >&2; }
cannot() {
  say "cannot be built here: $1"
  exit 1
}

is_built() {
  local program
  for program in "${programs[@]}"; do [ -x "$kept/$program" ] || return 1; done
}

if is_built; then
  echo "$kept"
  exit 0
fi
if [ "${1:-}" = --where ]; then
  say "not built (make kube-apiserver does it)"
  exit 1
fi

[ "$(uname -s)" = Linux ] || cannot "this is $(uname -s), and Debian's packages are for Linux"
for tool in apt-get dpkg-deb dpkg make gcc tar; do
  command -v "$tool" >/dev/null || cannot "there is no $tool (Debian: apt-get install dpkg build-essential)"
done
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
[ -r "$keyring" ] || cannot "there is no $keyring: this is no Debian"

# As apt is configured here: the mirror from which the suites of Debian itself come.
mirror=$(apt-get indextargets --format '$(LABEL) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' |
  awk '$1 == "Debian" && $2 == "main" && !seen++ { print $3 }')
[ -n "$mirror" ] || cannot "apt knows no mirror of Debian (apt-get update first)"

mkdir -p "$(dirname "$kept")"
exec 9>"$kept.lock"
flock 9
if is_built; then # by somebody else, meanwhile
  echo "$kept"
  exit 0
fi
rm -rf "$kept".building.* # of a run that was killed
work=$(mktemp -d "$kept.building.XXXXXX")
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
free_mib=$(df -Pm "$work" | awk 'NR == 2 { print $4 }')
[ "$free_mib" -ge 4096 ] || cannot "$work needs 4 GiB of disk, $free_mib MiB are free"
cd "$work"

say "1/5 lists of Debian's $suite (a minute)"
mkdir -p apt/lists/partial apt/archives/partial apt/parts root debs
printf 'deb [signed-by=%s] %s %s main\ndeb-src [signed-by=%s] %s %s main\n' \
  "$keyring" "$mirror" "$suite" "$keyring" "$mirror" "$suite" >apt/sources.list
cat >apt/apt.conf <<END
Dir::Etc::sourcelist "$work/apt/sources.list";
Dir::Etc::sourceparts "$work/apt/parts";
Dir::State::lists "$work/apt/lists";
Dir::Cache "$work/apt";
APT::Sandbox::User "$(id -un)";
Debug::NoLocking "true";
Acquire::Languages "none";
END
export APT_CONFIG=$work/apt/apt.conf
apt-get -qq update

say "2/5 packages, and the source of Kubernetes (150 MB)"
go=golang-1.19
(
  cd debs
  apt-get -qq download "$go-go" "$go-src" golang-github-modern-go-reflect2-dev etcd-server etcd-client rsync libpopt0 libxxhash0
)
for package in debs/*.deb; do dpkg-deb -x "$package" root; done
apt-get -qq source --download-only kubernetes
mkdir source
tar -xzf kubernetes_*.orig.tar.gz -C source --strip-components 1

say "3/5 the source is made fit for this compiler"
# The reflect2 of that time reads maps by the runtime's own layout, which has changed: the server would die of it.
rm -r source/vendor/github.com/modern-go/reflect2/*
cp -r root/usr/share/gocode/src/github.com/modern-go/reflect2/. source/vendor/github.com/modern-go/reflect2/
rm -f source/vendor/github.com/modern-go/reflect2/*_test.go
# The tree of a package has no history to ask.
cat >source/ver <<END
KUBE_GIT_COMMIT='unknown'
KUBE_GIT_TREE_STATE='clean'
KUBE_GIT_VERSION='v$version'
KUBE_GIT_MAJOR='1'
KUBE_GIT_MINOR='20'
END
# What a package of another release may link to is taken from this suite's packages, for rsync alone.
mkdir bin
cat >bin/rsync <<END
#!/bin/sh
LD_LIBRARY_PATH=$work/root/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH 2>/dev/null || gcc -print-multiarch) exec $work/root/usr/bin/rsync "\$@"
END
chmod +x bin/rsync

say "4/5 kube-apiserver is compiled (some ten minutes of one core)"
export PATH=$work/bin:$work/root/usr/lib/go-1.19/bin:$PATH
export GOROOT=$work/root/usr/lib/go-1.19 GOCACHE=$work/cache GOPATH=$work/path GOFLAGS= GO111MODULE= GOPROXY=off GOTOOLCHAIN=local
if ! KUBE_GIT_VERSION_FILE=$work/source/ver nice -n 19 make -C source WHAT=cmd/kube-apiserver >build.log 2>&1; then
  tail -n 40 build.log >&2
  cannot "the compiler refused; the end of its output is above"
fi

say "5/5 kept in $kept"
rm -rf made && mkdir made
cp -L source/_output/bin/kube-apiserver root/usr/bin/etcd root/usr/bin/etcdctl made/
[ "Kubernetes v$version" = "$(made/kube-apiserver --version)" ] || cannot "what was built says that it is $(made/kube-apiserver --version)"
made/etcd --version >&2
rm -rf "$kept"
mv made "$kept"
echo "$kept"
