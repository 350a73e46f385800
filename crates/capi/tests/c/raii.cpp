// SPDX-License-Identifier: MIT OR Apache-2.0
// uwork.hpp: cleanup in destructors, results of jobs, exceptions.
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>

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
		/* The destructor cancels it. */
		CHECK(later.enqueue(queue, 1h));
	}
	CHECK(runs == 11 && queue.flush_for(1h));
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

	thrown = false;
	try {
		sum.join();
	} catch (const uwork::error &error) {
		thrown = error.code().value() == EINVAL && std::string(error.what()).find("joined already") != std::string::npos;
	}
	CHECK(thrown);

	/* A job that is never joined runs nevertheless, and is freed. */
	std::atomic<int> runs{ 0 };
	for (int i = 0; i < 100; i++)
		queue.spawn([&runs, kept = std::make_unique<int>(i)] { runs += *kept < 100; });
	queue.flush();
	CHECK(runs == 100);
}

static void bounds()
{
	uwork::queue queue("bounds", UW_UNBOUND, 1);
	uwork::bounded_queue bounded(queue, 2);
	std::atomic<int> runs{ 0 };
	bool thrown = false;

	queue.pause();
	auto first = bounded.spawn([] { return 1; });
	auto second = bounded.try_spawn([kept = std::make_unique<int>(2)] { return *kept; });
	CHECK(second.index() == 0);
	/* Full: the function comes back whole. */
	auto back = bounded.try_spawn([kept = std::make_unique<int>(3)] { return *kept; });
	CHECK(back.index() == 1 && std::get<1>(back)() == 3);
	auto late = bounded.spawn_for(std::move(std::get<1>(back)), 1ms);
	CHECK(late.index() == 1 && std::get<1>(late)() == 3);
	CHECK(!bounded.try_reserve() && !bounded.reserve_for(1ms));
	/* A function that is cancelled leaves its place. */
	CHECK(std::get<0>(second).cancel());
	auto third = bounded.spawn(std::move(std::get<1>(late)));
	queue.resume();
	CHECK(first.join() == 1 && third.join() == 3);

	{
		auto outer = bounded.try_reserve();
		uwork::bounded_queue::place inner = bounded.reserve(), moved = std::move(inner);

		CHECK(outer && !bounded.try_reserve());
		outer.reset();
		CHECK(bounded.reserve_for(1h));
	}
	{
		/* An item that keeps its place until its function starts. */
		std::optional<uwork::bounded_queue::place> place;
		uwork::work work([&] {
			place.reset();
			runs++;
		});

		for (int i = 0; i < 10; i++) {
			place.emplace(bounded.reserve());
			CHECK(work.enqueue(queue));
			work.flush();
		}
		CHECK(runs == 10);
	}
	/* An item of the queue would wait for itself. A join could run it here, with the same result. */
	int code = bounded
			   .spawn([&] {
				   try {
					   bounded.reserve();
				   } catch (const uwork::error &error) {
					   return error.code().value();
				   }
				   return 0;
			   })
			   .join();
	CHECK(code == EDEADLK && bounded.try_reserve());
	try {
		uwork::bounded_queue none(queue, 0);
	} catch (const uwork::error &error) {
		thrown = error.code().value() == EINVAL;
	}
	CHECK(thrown);
	uwork::bounded_queue other = std::move(bounded);
	CHECK(other.try_reserve());
}

static void calls_in_items()
{
	uwork::queue queue("calls");
	auto job = queue.spawn([] {
		bool thrown = false;

		try {
			uwork::unpinned([] { throw std::runtime_error("as it should"); });
		} catch (const std::runtime_error &) {
			thrown = true;
		}
		CHECK(thrown);
		return uwork::blocking([] { return 40; }) + *uwork::unpinned([] { return std::make_unique<int>(2); });
	});

	CHECK(job.join() == 42);
}

/* The state of a thread, which its items count in. */
struct counts {
	unsigned kind = UW_THREAD_WORKER;
	int items = 0;
};

static void hooks()
{
	/* What the hooks refer to lives as long as the process. */
	static std::promise<int> ended;
	uwork::thread_hooks<counts> counting(
		[](const uw_thread &thread) { return std::make_unique<counts>(counts{ thread.kind, 0 }); },
		[](const uw_thread &thread, std::unique_ptr<counts> own) {
			if (own->kind == UW_THREAD_DEDICATED && std::string(thread.queue) == "own")
				ended.set_value(own->items);
		});
	uwork::thread_hooks<int> zeros, moved = std::move(zeros);
	uw_queue_attrs attrs = UW_QUEUE_ATTRS_INIT;

	CHECK(counting.missed() == 0 && counting.state() == nullptr && moved.state() == nullptr);
	attrs.dedicated = true;
	{
		uwork::queue own("own", attrs);
		std::promise<bool> told;

		for (int i = 0; i < 3; i++)
			own.spawn([&] { counting.state()->items++; });
		/* A join or a flush could run it on this thread. */
		own.spawn([&] { told.set_value(*moved.state() == 0 && counting.state()->items == 3); });
		CHECK(told.get_future().get());
	}
	CHECK(ended.get_future().get() == 3);
	{
		uwork::thread_hooks<counts> removed;
	}

	/* States that are made where an item asks, or before the items of a queue. */
	static std::atomic<int> starts{ 0 }, stops{ 0 };
	auto start = [](const uw_thread &) { return std::make_unique<int>(++starts); };
	auto stop = [](const uw_thread &, std::unique_ptr<int>) { stops++; };
	uwork::thread_hooks<int> asked(start, stop, uwork::thread_hooks<int>::when::asked);
	uwork::queue queue("lazy");

	queue.spawn([] {}).join();
	CHECK(starts == 0);
	CHECK(queue.spawn([&] { return asked.state() != nullptr; }).join());
	CHECK(starts == 1);
	asked.add_to(queue);
	int before = queue.spawn([] { return starts.load(); }).join();
	CHECK(before >= 1);
	CHECK(asked.remove_sync() == 0 && starts == stops);
	CHECK(!queue.spawn([&] { return asked.state() != nullptr; }).join());
}

static void disabled()
{
	uwork::queue queue("disabled");
	std::atomic<int> runs{ 0 };
	uwork::work work([&] { runs++; });
	uwork::delayed_work later([&] { runs += 10; });
	bool thrown = false;

	CHECK(!work.disable() && !work.disable_sync());
	try {
		work.enqueue(queue);
	} catch (const uwork::error &error) {
		thrown = error.code().value() == EPERM;
	}
	CHECK(thrown && !work.enable() && work.enable_and_enqueue(queue));
	work.flush();
	CHECK(runs == 1);
	CHECK(later.enqueue(queue, 1h) && later.disable_sync() && later.enable() && !later.is_pending());
	queue.flush();
	CHECK(runs == 1);
}

static void grace_periods()
{
	uwork::queue queue("grace");
	std::atomic<int> runs{ 0 };

	{
		uwork::rcu_work work([&] { runs++; });

		{
			uwork::rcu_read_side outer, inner;

			CHECK(work.enqueue(queue) && !work.enqueue(queue) && work.is_pending());
			/* The item would wait for itself. */
			CHECK(!work.flush() && runs == 0);
		}
		work.flush();
		CHECK(runs == 1);
		CHECK(!work.disable_sync() && work.enable());
		uwork::rcu_read_side side;
		CHECK(work.enqueue(queue) && work.cancel_sync() && work.enqueue(queue));
		/* The destructor cancels it. */
	}
	queue.flush();
	CHECK(runs == 1);
}

static void task_work()
{
	std::atomic<bool> posted{ false }, over{ false };
	uwork::task here = uwork::task::current(), copy = here;
	std::string order;
	std::optional<uwork::task> ended;

	CHECK(copy.post([&, kept = std::make_unique<char>('a')] { order += *kept; }, UW_NOTIFY_NONE));
	CHECK(here.post([&] { order += 'b'; }, UW_NOTIFY_RESUME));
	CHECK(uwork::task::safe_point() == 2 && order == "ab" && uwork::task::run() == 0);

	std::thread other([&] {
		ended.emplace(uwork::task::current());
		posted = true;
		while (!over)
			uwork::task::park_for(1h);
	});
	while (!posted)
		std::this_thread::yield();
	CHECK(ended->post([&] {
		order += 'c';
		here.post([&] { order += 'd'; });
		over = true;
	}));
	while (uwork::task::park() == 0)
		;
	other.join();
	CHECK(order == "abcd");
	CHECK(!ended->post([] {}));
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
	/* Before every other use: no thread is too early for the hooks. */
	hooks();
	items();
	jobs();
	bounds();
	calls_in_items();
	disabled();
	grace_periods();
	task_work();
	errors();
	std::puts("ok");
}
