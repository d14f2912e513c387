#!/bin/sh
# Builds and runs the images with the first container engine that answers, docker or podman:
#   tools/container.sh build       the images rocketpy-broker and rocketpy-notebooks
#   tools/container.sh up FILE     what a compose file describes, until Ctrl-C
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

build() {
	# Podman's own format of images knows no health check.
	format=
	if [ "$engine" = podman ]; then format="--format docker"; fi
	for image in broker notebooks; do
		# shellcheck disable=SC2086
		$engine build $format -f docker/Dockerfile --target $image -t rocketpy-$image .
	done
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

case "${1:-}" in
	build | up)
		find_engine
		"$@"
		;;
	*)
		sed -n '2,4s/^# \{0,1\}//p' "$0" >&2
		exit 2
		;;
esac
