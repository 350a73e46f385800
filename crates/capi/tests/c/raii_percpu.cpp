// SPDX-License-Identifier: MIT OR Apache-2.0
// uwork.hpp: per-CPU data, caches and batches of a type, work for one CPU's data.
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

#include <uwork.hpp>

#include "check.h"

struct tally {
	long number;
	int cpu;
};

static void percpu_data()
{
	uwork::percpu<tally> tallies;
	uwork::percpu_counter counter;
	std::atomic<int> seen{ 0 };
	bool thrown = false;
	long sum = 0;

	{
		auto first = tallies.lock(0);

		CHECK(first->number == 0 && first.cpu() == 0);
		first->number = 5;
		auto moved = std::move(first);
		(*moved).cpu = 7;
		std::thread([&] { CHECK(!tallies.try_lock(0)); }).join();
		try {
			tallies.lock(0);
		} catch (const uwork::error &error) {
			thrown = error.code().value() == EDEADLK;
		}
		CHECK(thrown);
		thrown = false;
	}
	CHECK(tallies.try_lock(0).value()->cpu == 7);
	CHECK(tallies.try_lock());
	tallies.lock()->number++;
	tallies.with(0, [&](int cpu, tally &value) { CHECK(cpu == 0 && value.number >= 5); });
	tallies.for_each([&](int, tally &) { seen++; });
	CHECK(seen == tallies.cpus());
	try {
		tallies.for_each([&](int, tally &value) {
			value.number = 2;
			throw std::runtime_error("as it should");
		});
	} catch (const std::runtime_error &) {
		thrown = true;
	}
	uwork::percpu<tally> taken = std::move(tallies);
	for (int cpu = 0; cpu < taken.cpus(); cpu++)
		sum += taken.lock(cpu)->number;
	CHECK(thrown && sum == 2L * taken.cpus());
	counter.add(40);
	counter.add(2);
	CHECK(counter.sum() == 42);
}

// The errno value that `function` throws; 0 if it throws nothing.
template <typename F>
static int thrown_by(F function)
{
	try {
		function();
	} catch (const uwork::error &error) {
		return error.code().value();
	}
	return 0;
}

struct alignas(64) counted {
	explicit counted(int wanted, std::unique_ptr<int> given = nullptr) : number(wanted), owned(std::move(given))
	{
		if (wanted < 0)
			throw std::runtime_error("as it should");
		alive++;
	}

	counted(const counted &) = delete;
	counted &operator=(const counted &) = delete;

	~counted()
	{
		alive--;
	}

	int number;
	std::unique_ptr<int> owned;
	static std::atomic<int> alive;
};

std::atomic<int> counted::alive{ 0 };

static void caches()
{
	uwork::percpu_cache<counted> first("counted");
	decltype(first)::pointer none, kept;

	CHECK(!none);
	{
		auto one = first.make(1), two = first.make(2, std::make_unique<int>(22));

		CHECK(reinterpret_cast<std::uintptr_t>(one.get()) % 64 == 0);
		CHECK(one->number == 1 && *two->owned == 22 && counted::alive == 2 && first.stats().out == 2);
		kept = std::move(two);
	}
	CHECK(counted::alive == 1 && first.stats().out == 1);

	/* If a constructor throws, the object's memory is freed. */
	bool thrown = false;
	try {
		first.make(-1);
	} catch (const std::runtime_error &) {
		thrown = true;
	}
	CHECK(thrown && counted::alive == 1 && first.stats().out == 1);

	/* Objects stay valid when their cache is moved. */
	uwork::percpu_cache<counted> second = std::move(first);
	CHECK(*kept->owned == 22 && second.stats().out == 1);
	kept.reset();
	CHECK(counted::alive == 0 && second.stats().out == 0);

	void *memory = second.allocate();
	CHECK(memory && second.stats().out == 1);
	second.deallocate(memory);
	second.deallocate(nullptr);
	CHECK(second.flush_all() > 0 && second.flush_all() == 0 && second.stats().in_magazines == 0);
	CHECK(second.shrink() > 0 && second.stats().bytes == 0);
	/* In the debug mode this call ends the process. */
	CHECK(getenv("UWORK_DEBUG") || thrown_by([] { uwork::percpu_cache<int>(nullptr); }) == EINVAL);
}

/*
 * An object that outlives its cache stays valid. The cache is then never destroyed, which is a
 * leak.
 */
static void outlived_cache()
{
#ifdef __SANITIZE_ADDRESS__
	__lsan::ScopedDisabler meant;
#endif
	uwork::percpu_cache<counted>::pointer kept;
	{
		uwork::percpu_cache<counted> cache("outlived");

		kept = cache.make(5);
	}
	CHECK(kept->number == 5);
	kept.reset();
	CHECK(counted::alive == 0);
}

/* Objects that are freed by another thread than the one that allocated them. */
static void shared_cache()
{
	uwork::percpu_cache<counted> cache("shared");
	std::vector<std::thread> threads;
	std::mutex lock;
	std::vector<uwork::percpu_cache<counted>::pointer> passed;

	for (int thread = 0; thread < 3; thread++)
		threads.emplace_back([&, thread] {
			for (int i = 0; i < 2000; i++) {
				auto made = cache.make(thread);
				std::lock_guard<std::mutex> held(lock);

				passed.push_back(std::move(made));
				if (passed.size() > 100)
					passed.erase(passed.begin(), passed.begin() + 50);
			}
		});
	for (std::thread &thread : threads)
		thread.join();
	CHECK(counted::alive == static_cast<int>(passed.size()) && cache.stats().out == passed.size());
	passed.clear();
	CHECK(counted::alive == 0 && cache.stats().out == 0);
}

static void batches()
{
	static const int numbers[10] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 };
	std::multiset<int> seen;
	std::mutex lock;
	std::atomic<size_t> most{ 0 };
	uwork::percpu_batch<const int> batch(4, [&](auto items) {
		std::lock_guard<std::mutex> held(lock);
		size_t index = 0;

		if (items.size() > most)
			most = items.size();
		for (const int *number : items) {
			CHECK(number == items[index++]);
			seen.insert(*number);
		}
		CHECK(index == items.size());
	});

	for (const int &number : numbers)
		batch.add(&number);
	CHECK(batch.drain_all() >= 0 && seen.size() == 10 && seen == std::multiset<int>(numbers, numbers + 10));
	CHECK(most > 0 && most <= 4 && batch.drain_all() == 0);

	/* The destructor passes on the remaining items, also after a move. */
	{
		uwork::percpu_batch<const int> other = std::move(batch);

		other.add(&numbers[7]);
		CHECK(seen.count(7) == 1);
	}
	CHECK(seen.count(7) == 2);

	int error = 0;
	uwork::percpu_batch<const int> *itself = nullptr;
	uwork::percpu_batch<const int> draining(8, [&](auto) { error = thrown_by([&] { itself->drain_all(); }); });
	itself = &draining;
	draining.add(&numbers[0]);
	CHECK(draining.drain_all() == 1 && error == EDEADLK);
	CHECK(thrown_by([] { uwork::percpu_batch<int>(0, [](auto) {}); }) == EINVAL);
}

static void percpu_items()
{
	uwork::queue queue("percpu-items", UW_PERCPU);
	uwork::percpu<tally> tallies;
	std::atomic<int> runs{ 0 };
	unsigned long mask[16] = {};
	int cpus = uw_cpus(UW_CPUS_ALLOWED, mask, sizeof(mask)), cpu = 0;

	CHECK(cpus > 0);
	while (!(mask[cpu / 64] >> cpu % 64 & 1))
		cpu++;
	{
		uwork::percpu_work work(cpu, [&](int of) {
			tallies.lock(of)->number++;
			runs++;
		});

		CHECK(!work.flush());
		CHECK(work.enqueue(queue));
		work.flush();
		CHECK(runs == 1 && tallies.lock(cpu)->number == 1 && !work.is_pending());
		CHECK(!work.disable() && thrown_by([&] { work.enqueue(queue); }) == EPERM && work.enable());
		CHECK(work.enqueue(queue));
	}
	/* The destructor waits for the function, or cancels it. */
	const int then = runs;
	queue.flush();
	CHECK(runs == then && (uw_percpu_mode() == 0 || runs == 2));
	uwork::percpu_work nowhere(-1, [&](int) { runs++; });
	CHECK(getenv("UWORK_DEBUG") || thrown_by([&] { nowhere.enqueue(queue); }) == EINVAL);
	CHECK(uw_percpu_mode() != 0 || !uwork::percpu_work::is_remote(cpu));
}

int main()
{
	percpu_data();
	caches();
	outlived_cache();
	shared_cache();
	batches();
	percpu_items();
	std::puts("ok");
}
