// The same with C++ objects. Build it: c++ -std=c++17 hello.cpp $(pkg-config --cflags --libs uwork)
#include <atomic>
#include <chrono>
#include <iostream>

#include <uwork.hpp>

int main()
try {
	using namespace std::chrono_literals;
	uwork::queue queue("hello");
	std::atomic<int> runs{ 0 };
	uwork::work count([&] { runs++; });
	uwork::delayed_work later([&] { runs += 10; });

	count.enqueue(queue);
	count.flush();
	later.enqueue(queue, 1ms);
	later.flush();
	auto answer = queue.spawn([] { return 6 * 7; });

	std::cout << runs << " counted, " << answer.join() << " computed on a worker\n";
} catch (const uwork::error &error) {
	std::cerr << error.what() << '\n';
	return 1;
}
