#!/bin/sh
# Sets up a machine: tools/setup.sh COMMAND
#   python VENV STAMP   an environment with every dependency, from requirements.lock
#   java                Java 17 or newer
#   programs            programs that tests of faults call
#   rocketmq VERSION    RocketMQ's jars, and the Java programs of tests/interop, compiled
#   kafka PYTHON        Kafka's broker, Spark's Kafka connector, and the PySpark that it fits
#   go                  the Go programs of tests/interop, compiled
#   python-sdk          RocketMQ's SDK for Python, in an environment of its own
#   java-sdk            RocketMQ's SDK for Java, and the program of tests/interop that drives it
#   proxy               the jars of RocketMQ's proxy
#   console             Chromium, Prometheus, and axe-core: programs that look at a running broker
#   java-home           prints the home of the first Java 17 or newer: JAVA_HOME's, the path's, any
# A missing program is installed where apt-get can; else the message says how to get it.
set -eu
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
IS_SUPPORTED='import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 14))'

# install NEED COMMAND
install() {
	if ! command -v apt-get > /dev/null; then
		echo "make: $1 is missing; install it with your system's package manager" >&2
		exit 1
	elif [ "$(id -u)" -ne 0 ]; then
		echo "make: $1 is missing; install it: sudo sh -c '$2'" >&2
		exit 1
	fi
	echo "make: $1 is missing; installing it: $2"
	DEBIAN_FRONTEND=noninteractive sh -c "$2"
}

# install_java NEED PACKAGE FALLBACK
install_java() {
	install "$1" "apt-get update -q && (apt-get install -qy $2 || apt-get install -qy $3)"
}

java_home() {
	for java in "${JAVA_HOME:-}/bin/java" "$(command -v java || true)" /usr/lib/jvm/*/bin/java; do
		[ -x "$java" ] || continue
		version=$("$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p')
		if [ "${version:-0}" -ge 17 ]; then
			dirname "$(dirname "$(readlink -f "$java")")"
			break
		fi
	done
}

python() {
	venv=$1 stamp=$2
	if ! "$venv/bin/python" -c '' 2> /dev/null; then
		if ! "$PYTHON" -c "$IS_SUPPORTED"; then
			echo "make: '$PYTHON' is not Python 3.10 to 3.13;" \
				"name one that is: make PYTHON=python3.12" >&2
			exit 1
		fi
		if ! "$PYTHON" -c 'import ensurepip, venv' 2> /dev/null; then
			version=$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
			install "the module venv of $PYTHON" \
				"apt-get update -q && apt-get install -qy python$version-venv"
		fi
		echo "make: creating $venv"
		"$PYTHON" -m venv --clear "$venv"
	fi
	if ! "$venv/bin/python" -c "$IS_SUPPORTED"; then
		echo "make: $venv holds another Python than 3.10 to 3.13; remove it: rm -r $venv" >&2
		exit 1
	fi
	echo "make: installing dependencies into $venv"
	"$venv/bin/python" -m pip --version > /dev/null 2>&1 || "$venv/bin/python" -m ensurepip
	"$venv/bin/python" -m pip install -q --disable-pip-version-check -r requirements.lock
	"$venv/bin/python" -m pip install -q --disable-pip-version-check --no-build-isolation \
		--no-deps -e .
	rm -f "$venv"/installed-*
	touch "$stamp"
}

java() {
	if [ -z "$(java_home)" ]; then
		install_java "Java 17 or newer" openjdk-17-jre-headless default-jre-headless
	fi
	if [ -z "$(java_home)" ]; then
		echo "make: still no Java 17 or newer; install one and set JAVA_HOME to it" >&2
		exit 1
	fi
}

programs() {
	PATH="$PATH:/usr/sbin:/sbin"
	for program in strace mkfs.ext4 openssl setpriv; do
		command -v "$program" > /dev/null && continue
		(install "strace, mkfs.ext4, openssl or setpriv" \
			"apt-get update -q && apt-get install -qy strace e2fsprogs openssl util-linux") \
			|| echo "make: going on without; tests that need them do not pass" >&2
		return
	done
}

# fetch_jars POM NAME
# Fetches a pom's jars once, into the folder that ROCKETPY_CACHE names or else into the clone. A
# changed pom has jars of its own. Sets JAVA_HOME and jars.
fetch_jars() {
	jars=${ROCKETPY_CACHE:-$PWD/.interop}/$2-$(cksum < "$1" | cut -d ' ' -f 1)
	JAVA_HOME=$(java_home)
	export JAVA_HOME
	[ ! -e "$jars/complete" ] || return 0
	echo "make: fetching the jars of $1 into $jars"
	command -v mvn > /dev/null || install Maven "apt-get update -q && apt-get install -qy maven"
	rm -rf "$jars"
	mvn -q -B -f "$1" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$jars"
	touch "$jars/complete"
}

# compile FOLDER SOURCE...
compile() {
	folder=$1
	shift
	if [ ! -x "$JAVA_HOME/bin/javac" ]; then
		install_java "a Java compiler" openjdk-17-jdk-headless default-jdk-headless
		JAVA_HOME=$(java_home)
	fi
	rm -rf "$folder/lib" "$folder/classes"
	mkdir -p "$folder"
	ln -s "$jars" "$folder/lib"
	"$JAVA_HOME/bin/javac" -cp "$folder/lib/*" -d "$folder/classes" "$@"
	touch "$folder/compiled"
}

rocketmq() {
	sources=tests/interop/java
	fetch_jars "$sources/$1/pom.xml" rocketmq
	compile ".interop/$1" $sources/*.java "$sources/$1"/*.java
}

java_sdk() {
	sources=tests/interop/apache_v2/java
	fetch_jars $sources/pom.xml java-sdk
	compile .interop/java-sdk $sources/*.java
}

proxy() {
	fetch_jars tests/interop/apache_v2/proxy/pom.xml proxy
	rm -rf .interop/proxy
	mkdir -p .interop
	ln -s "$jars" .interop/proxy
}

# The client's modules are fetched once, into the folder of RocketMQ's jars; go.sum has their sums.
go_client() {
	folder=$PWD/.interop/go
	if ! command -v go > /dev/null; then
		install Go "apt-get update -q && apt-get install -qy golang-go"
	fi
	echo "make: compiling RocketMQ's Go client"
	(
		cd tests/interop/go
		GOTOOLCHAIN=local GOMODCACHE=${ROCKETPY_CACHE:-$folder}/go-modules CGO_ENABLED=0 \
			GOFLAGS="-mod=mod -modcacherw -buildvcs=false" \
			go build -o "$folder/client" .
	)
	touch "$folder/client"
}

# The SDK's generated modules clash with ours, so no process may import both.
python_sdk() {
	requirements=tests/interop/apache_v2/requirements.txt
	venv=${ROCKETPY_CACHE:-$PWD/.interop}/python-sdk-$(cksum < $requirements | cut -d ' ' -f 1)
	if [ ! -e "$venv/complete" ]; then
		echo "make: installing RocketMQ's SDK for Python into $venv"
		"$PYTHON" -m venv --clear "$venv"
		"$venv/bin/python" -m pip install -q --disable-pip-version-check -r $requirements
		touch "$venv/complete"
	fi
	mkdir -p .interop
	rm -rf .interop/python-sdk
	ln -s "$venv" .interop/python-sdk
}

console() {
	axe=4.14.1 sum=e6b0ce02b84d892e2e33e403485e7f3d6c29e2be6df65daf44d89ba564139745
	archive=https://registry.npmjs.org/axe-core/-/axe-core-$axe.tgz
	folder=${ROCKETPY_CACHE:-$PWD/.interop}/axe-$axe
	for program in chromium chromedriver prometheus; do
		command -v $program > /dev/null && continue
		install "Chromium, its driver or Prometheus" \
			"apt-get update -q && apt-get install -qy chromium chromium-driver prometheus"
		break
	done
	if [ ! -e "$folder/axe.min.js" ]; then
		echo "make: fetching axe-core $axe into $folder"
		mkdir -p "$folder"
		"$PYTHON" -c 'import sys, urllib.request; urllib.request.urlretrieve(*sys.argv[1:])' \
			$archive "$folder/fetched.tgz"
		echo "$sum  $folder/fetched.tgz" | sha256sum --check --quiet
		tar -xzf "$folder/fetched.tgz" -C "$folder" --strip-components=1 package/axe.min.js
		rm "$folder/fetched.tgz"
	fi
	mkdir -p .interop
	rm -rf .interop/axe
	ln -s "$folder" .interop/axe
}

# Spark's Kafka connector fits one PySpark, which takes the place of the environment's own.
kafka() {
	folder=.interop/peers pom=benchmarks/peers/spark_kafka.xml
	version=$(sed -n 's:.*<spark.version>\(.*\)</spark.version>.*:\1:p' $pom)
	pyspark=${ROCKETPY_CACHE:-$PWD/.interop}/pyspark-$version
	rm -rf $folder
	mkdir -p $folder
	fetch_jars benchmarks/peers/kafka.xml kafka
	ln -s "$jars" $folder/kafka
	fetch_jars $pom spark-kafka
	ln -s "$jars" $folder/spark-kafka
	if [ ! -e "$pyspark/complete" ]; then
		echo "make: installing PySpark $version into $pyspark"
		rm -rf "$pyspark"
		"$1" -m pip install -q --disable-pip-version-check --target "$pyspark" "pyspark==$version"
		touch "$pyspark/complete"
	fi
	# As docs/performance.md advises, and as in the image of the notebooks.
	rm -f "$pyspark/pyspark/python/lib/pyspark.zip"
	ln -s "$pyspark" $folder/pyspark
	touch $folder/fetched
}

case "${1:-}" in
	python | java | programs | rocketmq | proxy | console | kafka) "$@" ;;
	go) go_client ;;
	python-sdk) python_sdk ;;
	java-sdk) java_sdk ;;
	java-home) java_home ;;
	*)
		sed -n '2,16s/^# \{0,1\}//p' "$0" >&2
		exit 2
		;;
esac
