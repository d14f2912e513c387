#!/bin/sh
# Builds and runs the images with the first container engine that answers, docker or podman:
#   tools/container.sh build       the images rocketpy-broker and rocketpy-notebooks
#   tools/container.sh up FILE     the services of a compose file, until Ctrl-C
#   tools/container.sh interop     both images by Podman, on a base image made of Debian's packages
set -eu
cd "$(dirname "$0")/.."

# A program may be installed without an engine that answers.
find_engine() {
	engine= found=
	for program in docker podman; do
		if "$program" info > /dev/null 2>&1; then
			engine=$program
			return
		fi
		if command -v "$program" > /dev/null; then found="$found $program"; fi
	done
	if [ -n "$found" ]; then
		echo "make: no container engine answers:$found is installed, but '${found##* } info'" \
			"fails; start the engine, or see the output of that command" >&2
	else
		echo "make: no container engine: neither docker nor podman is installed;" \
			"install one, see docker/README.md" >&2
	fi
	exit 1
}

# build_images COMMAND: both images by that command, with its options
build_images() {
	for image in broker notebooks; do
		"$@" -f docker/Dockerfile --target $image -t rocketpy-$image . || return
	done
}

build() {
	# Podman's own format of images knows no health check.
	case $engine in
		podman) build_images podman build --format docker ;;
		*) build_images "$engine" build ;;
	esac
}

up() {
	if $engine compose version > /dev/null 2>&1; then
		compose="$engine compose"
	elif command -v "$engine-compose" > /dev/null; then
		compose=$engine-compose
	else
		echo "make: $engine has no compose; install its plugin or $engine-compose" >&2
		exit 1
	fi
	exec $compose -f "$1" up
}

# Podman's programs; catatonit is what `init: true` runs.
PODMAN_PACKAGES="podman runc conmon netavark aardvark-dns catatonit iptables debootstrap"
# Debian bookworm's Python, in place of the one that the Dockerfile names.
DEBIAN=bookworm DEBIAN_PYTHON=3.11
CERTIFICATES=/etc/ssl/certs/ca-certificates.crt

# An image as the Dockerfile's base, without a registry of images.
make_base() {
	base=docker.io/library/python:$DEBIAN_PYTHON-slim-$DEBIAN
	if podman image exists $base; then return; fi
	echo "make: making the base image of Debian's packages"
	folder=$(mktemp -d)
	mirror=$(apt-get indextargets --format '$(REPO_URI)' | head -n 1)
	debootstrap --variant=minbase --include=python3,python3-pip,python3-venv,ca-certificates \
		$DEBIAN "$folder/root" "$mirror" > "$folder/log" || { tail "$folder/log" >&2; exit 1; }
	# The base's Python is the image's own: pip may install into it.
	rm -f "$folder/root/usr/lib/python3"*/EXTERNALLY-MANAGED
	ln -sf python3 "$folder/root/usr/bin/python"
	tar -C "$folder/root" -c . | podman import --quiet \
		-c 'ENV PATH=/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin' \
		-c 'ENV LANG=C.UTF-8' - $base
	rm -rf "$folder"
}

interop() {
	CONTAINERS_CONF=$PWD/tests/interop/containers/containers.conf
	export CONTAINERS_CONF
	# Some of their programs are on no PATH.
	if ! dpkg -s $PODMAN_PACKAGES > /dev/null 2>&1; then
		if [ "$(id -u)" -ne 0 ] || ! command -v apt-get > /dev/null; then
			echo "make: going on without containers; their tests need root and: $PODMAN_PACKAGES" >&2
			return
		fi
		echo "make: installing $PODMAN_PACKAGES"
		apt-get update -q
		DEBIAN_FRONTEND=noninteractive \
			apt-get install -qy --no-install-recommends $PODMAN_PACKAGES
	fi
	make_base
	echo "make: building the images of broker and notebooks"
	log=$(mktemp)
	build_images podman build --format docker --network host \
		--build-arg PYTHON_VERSION=$DEBIAN_PYTHON --env PIP_CERT=/run/certificates.crt \
		-v $CERTIFICATES:/run/certificates.crt:ro > "$log" 2>&1 \
		|| { tail -n 40 "$log" >&2; exit 1; }
	rm "$log"
}

case "${1:-}" in
	interop) interop ;;
	build | up)
		find_engine
		"$@"
		;;
	*)
		sed -n '2,5s/^# \{0,1\}//p' "$0" >&2
		exit 2
		;;
esac
