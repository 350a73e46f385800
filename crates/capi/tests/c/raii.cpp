// SPDX-License-Identifier: MIT OR Apache-2.0
// uwork.hpp: what ends with its scope, what a job gives back, what it throws.
#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>

#include <uwork.hpp>

#include "check.h"

using namespace std::chrono_literals;

static void items()
{
	uwork::queue queue("items");
	std::atomic<int> runs{ 0 };

	{
		uwork::work work([&] { runs++; });

		CHECK(work.enqueue(queue));
		work.flush();
		CHECK(runs == 1 && !work.is_pending());
		uwork::delayed_work later([&] { runs += 10; });
		CHECK(later.enqueue(queue, 1h) && !later.enqueue(queue, 1h) && later.is_pending());
		CHECK(later.flush() && runs == 11);
		CHECK(later.enqueue(queue, 1h) && later.cancel_sync() && runs == 11);
		/* Its end takes it back. */
		CHECK(later.enqueue(queue, 1h));
	}
	CHECK(runs == 11 && queue.flush_for(1min));
}

static void jobs()
{
	uwork::queue queue("jobs");
	auto moved = std::make_unique<int>(41);
	auto sum = queue.spawn([moved = std::move(moved)] { return std::make_unique<int>(*moved + 1); });
	auto failing = queue.spawn([]() -> std::string { throw std::runtime_error("as it should"); });
	bool thrown = false;

	CHECK(*sum.join() == 42);
	try {
		failing.join();
	} catch (const std::runtime_error &error) {
		thrown = std::string(error.what()) == "as it should";
	}
	CHECK(thrown);

	/* What nobody joins runs all the same, and is freed. */
	std::atomic<int> runs{ 0 };
	for (int i = 0; i < 100; i++)
		queue.spawn([&runs, kept = std::make_unique<int>(i)] { runs += *kept < 100; });
	queue.flush();
	CHECK(runs == 100);
}

static void errors()
{
	uwork::queue first("same");
	bool thrown = false;

	try {
		uwork::queue second("same");
	} catch (const uwork::error &error) {
		thrown = std::string(error.what()).find("same") != std::string::npos;
	}
	CHECK(thrown);
}

int main()
{
	items();
	jobs();
	errors();
	std::puts("ok");
}
