# The images, and the fetched and compiled files in .interop, of `make interop` and `bench-peers`.

INTEROP_SOURCES := tests/interop/java

.PHONY: images screenshots
images:
	@tools/container.sh interop

.interop/%/compiled: $(INTEROP_SOURCES)/%/pom.xml $(INTEROP_SOURCES)/%/Version.java \
		$(wildcard $(INTEROP_SOURCES)/*.java) | java
	@tools/setup.sh rocketmq $*

.interop/go/client: $(wildcard tests/interop/go/*)
	@tools/setup.sh go

.interop/python-sdk: tests/interop/apache_v2/requirements.txt
	@tools/setup.sh python-sdk

.interop/java-sdk/compiled: $(wildcard tests/interop/apache_v2/java/*) | java
	@tools/setup.sh java-sdk

.interop/axe: tools/setup.sh
	@tools/setup.sh console

.interop/proxy: tests/interop/apache_v2/proxy/pom.xml | java
	@tools/setup.sh proxy

.interop/peers/fetched: benchmarks/peers/kafka.xml benchmarks/peers/spark_kafka.xml \
		| $(INSTALLED) java
	@tools/setup.sh kafka $(BIN)/python
